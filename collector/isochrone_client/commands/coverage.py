"""`isochrone coverage`: whether every planned round left a sample."""

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import coverage as coverages
from isochrone_client.window import parse_window
from isochrone_wire.answers import Selection


@click.command("coverage", epilog=options.example("isochrone coverage --window 1h"))
@options.regions
@options.targets
@options.window
@options.reading
def coverage(
    *,
    collector: str,
    timeout_us: int,
    output: str,
    window: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
) -> None:
    """Show how many planned rounds left a sample, and with which outcomes."""
    now = now_at()
    selection = Selection(window=parse_window(window, now_at=now), regions=regions, targets=targets)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_coverage(selection)
    terminal.write(coverages.page(answer, now_at=now), output)
    coverages.require_rounds(answer)
