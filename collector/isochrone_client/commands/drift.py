"""`isochrone drift`: lasting changes."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.formats import between
from isochrone_client.pages import alerts as drift_pages
from isochrone_client.terminal import Output
from isochrone_wire.answers import Selection


@click.command("drift", epilog=options.example("isochrone drift --window 7d"))
@options.selecting
def drift(
    *,
    collector: Collector,
    timeout_us: int,
    output: Output,
    selection: Selection,
) -> None:
    """Show lasting changes of TTFT and speed, the newest first.

    A change is a new level that lasts for six rounds or more and is not explained by the hour of the day; single slow
    answers and bursts of three do not count. A return to the former level is another change.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.list_drift(selection)
    terminal.write(drift_pages.drift_page(answer), output)
    drift_pages.require_watched(answer)
    if not answer.events:
        watched = drift_pages.watched_summary(answer)
        terminal.state_empty(f"no lasting change between {between(answer.window)}; {watched}")
        terminal.state_empty(drift_pages.CHANGE)
