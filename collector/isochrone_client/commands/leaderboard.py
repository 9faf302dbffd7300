"""`isochrone leaderboard`: targets ranked as each region sees them."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.pages import leaderboard as leaderboards
from isochrone_wire.answers import Order, Selection

_EXAMPLES = (
    "isochrone leaderboard --region us-east-2 --window 7d",
    "isochrone leaderboard --by tokens-per-usd",
)


@click.command("leaderboard", epilog=options.example(*_EXAMPLES))
@click.option(
    "--by",
    "order",
    type=click.Choice([order.value for order in Order]),
    default=Order.TTFT.value,
    show_default=True,
    help="What to rank by: the median of a metric, the price, success, or what a dollar gives.",
)
@options.selecting
def leaderboard(
    *,
    collector: Collector,
    timeout_us: int,
    output: str,
    selection: Selection,
    order: str,
) -> None:
    """Rank targets by latency, speed, price or success, per region.

    A percentile is only said with its 95 % interval, which takes 6 samples for a median and 59 for a p95; a target
    without one ranks behind those that have one. Long windows are answered from summaries, within 1 %.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_leaderboard(selection, order=Order(order))
    terminal.write(leaderboards.page(answer), output)
    leaderboards.require_ranking(answer)
