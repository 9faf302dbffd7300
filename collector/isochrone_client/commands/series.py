"""`isochrone series`: values and outcomes over time."""

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import samples as series_pages
from isochrone_client.terminal import Output
from isochrone_wire.answers import Metric, Selection
from isochrone_wire.model import SECOND_US

_POINTS_FOR_PEOPLE = 32


@click.command(
    "series",
    epilog=options.example(
        "isochrone series --target kimi-k2.5 --window 7d",
        "isochrone series --metric e2e --limit 8 --output json",
        "isochrone series --target kimi-k2.5 --bins 40",
    ),
)
@options.metric_option("The metric of the values.")
@options.limit_option("Show the goodput: the share of planned requests whose metric, a latency, is within this limit.")
@click.option(
    "--points",
    type=click.IntRange(1, 500),
    metavar="N",
    help=f"Points of a series at most.  [default: {_POINTS_FOR_PEOPLE} in a table, 500 in json and csv]",
)
@click.option(
    "--bins",
    type=click.IntRange(2, 200),
    metavar="N",
    help="Also show the distribution of the values, in at most so many bins of a logarithmic scale.",
)
@options.selecting
def series(
    *,
    client: ObservatoryClient,
    output: Output,
    selection: Selection,
    metric: str,
    limit_s: float | None,
    points: int | None,
    bins: int | None,
) -> None:
    """Show values and outcomes over time, per target and region.

    Each point is of a bucket of time: p10, p50 and p90 of the values in it, and the numbers of probes that succeeded,
    failed, were throttled or skipped. Long windows are answered from summaries, within 1 %.
    """
    answer = client.get_series(
        selection,
        metric=Metric(metric),
        points=points or (_POINTS_FOR_PEOPLE if output.is_for_people else 0),
        limit_us=round((limit_s or 0) * SECOND_US),
        bins=bins or 0,
    )
    terminal.write(series_pages.series_page(answer, now_at=now_at()), output)
    series_pages.require_series(answer)
