"""`isochrone limits`: what remains of rate limits, and when they will be used up."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import limits as limit_pages
from isochrone_client.terminal import Output
from isochrone_wire.answers import Selection


@click.command("limits", epilog=options.example("isochrone limits", "isochrone limits --window 1h --points 60"))
@click.option(
    "--points",
    type=click.IntRange(1, 500),
    metavar="N",
    help="Points of the history at most.  [default: 24]",
)
@options.selecting
def limits(*, collector: Collector, timeout_us: int, output: Output, selection: Selection, points: int | None) -> None:
    """Show what remains of the rate limits that providers state in response headers.

    The newest headers come from the last 6 hours of the window, the history from all of it. The forecast continues the
    change of the last minutes, which includes every user of the same API key; a reset that comes before ends it.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_rate_limits(selection, points=points or 0)
    terminal.write(limit_pages.rate_limits_page(answer, now_at=now_at()), output)
    limit_pages.require_limits(answer)
