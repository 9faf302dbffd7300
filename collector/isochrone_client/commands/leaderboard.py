"""The commands that rank targets: `isochrone leaderboard` within each region, and `tiers` within each price tier."""

import click

from isochrone_client import terminal, watch
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import leaderboard as leaderboards
from isochrone_client.terminal import Output
from isochrone_client.watch import Write
from isochrone_client.window import parse_window
from isochrone_common.cli.command_line import Choice
from isochrone_wire.answers import Order, Selection

_EXAMPLES = (
    "isochrone leaderboard --region us-east-2 --window 7d",
    "isochrone leaderboard --by tokens-per-usd",
)


@click.command("leaderboard", epilog=options.example(*_EXAMPLES))
@click.option(
    "--by",
    "order",
    type=Choice([order.value for order in Order]),
    default=Order.TTFT.value,
    show_default=True,
    help="Rank by the median of a metric, the price, success, or tokens per dollar.",
)
@options.regions
@options.targets
@options.window
@options.watch
@options.reading
@options.verdict
@options.estimand
@options.client
def leaderboard(
    *,
    client: ObservatoryClient,
    output: Output,
    window: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    watch_s: float | None,
    order: str,
) -> None:
    """Rank targets by latency, speed, price or success, per region.

    A percentile is shown only with its 95 % interval, which takes 6 samples for a median and 59 for a p95; a target
    without one ranks behind those that have one. Long windows are answered from summaries, within 1 %.
    """

    def show(write: Write) -> None:
        selection = Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)
        answer = client.get_leaderboard(selection, order=Order(order))
        write(leaderboards.page(answer))
        leaderboards.require_ranking(answer)

    watch.run(show, output=output, every_s=watch_s)


@click.command("tiers", epilog=options.example("isochrone tiers --region us-east-2"))
@options.selecting
@options.estimand
def tiers(
    *,
    client: ObservatoryClient,
    output: Output,
    selection: Selection,
) -> None:
    """Rank targets by median TTFT within their price tier.

    Tiers are by US dollars per million output tokens: free, nearly free (below 0.15), sweet spot (0.15 to 0.30),
    quality first (0.30 to 0.80), premium (from 0.80 on), and unpriced where the plan states no price.
    """
    answer = client.get_tiers(selection)
    terminal.write(leaderboards.tiers_page(answer), output)
    leaderboards.require_tiers(answer)
