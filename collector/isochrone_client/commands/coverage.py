"""`isochrone coverage`: planned rounds and their samples; spend and budgets of today."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import coverage as coverages
from isochrone_client.pages import limits as spending
from isochrone_client.terminal import Output
from isochrone_client.window import parse_window
from isochrone_wire.answers import Selection


@click.command("coverage", epilog=options.example("isochrone coverage --window 1h", "isochrone coverage --spend"))
@options.regions
@options.targets
@options.window
@click.option("--spend", is_flag=True, help="Show instead the spend of today (UTC), its forecast and the budgets.")
@options.reading
@options.verdict
def coverage(
    *,
    collector: Collector,
    timeout_us: int,
    output: Output,
    window: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    spend: bool,
) -> None:
    """Show how many planned rounds left a sample, and with which outcomes.

    With --spend: the spend of each vantage with each provider since midnight UTC, the forecast of the whole day, and
    the shares of the budget. The window does not apply to it.
    """
    now = now_at()
    selection = Selection(window=parse_window(window, now_at=now), regions=regions, targets=targets)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        if spend:
            _show_spend(client, selection, output)
            return
        answer = client.get_coverage(selection)
    terminal.write(coverages.page(answer, now_at=now), output)
    coverages.require_rounds(answer)


def _show_spend(client: ObservatoryClient, selection: Selection, output: Output) -> None:
    answer = client.get_spend(selection)
    terminal.write(spending.page(answer), output)
    spending.require_spend(answer)
