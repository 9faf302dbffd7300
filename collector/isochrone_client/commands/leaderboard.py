import click

from isochrone_client import terminal
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.pages import leaderboard as pages
from isochrone_client.terminal import Output
from isochrone_common.cli.command_line import Choice
from isochrone_wire.answers import Metric, Order, Selection


@options.command(
    "leaderboard", "isochrone leaderboard --region us-east-2 --window 7d", "isochrone leaderboard --by tokens-per-usd"
)
@click.option(
    "--by",
    "order",
    type=Choice([order.value for order in Order]),
    default=Order.TTFT.value,
    show_default=True,
    help="Rank by the median of a metric, the price, success, or tokens per dollar.",
)
@options.selecting
@options.estimand
def leaderboard(*, client: ReadClient, output: Output, selection: Selection, order: str) -> None:
    """Rank targets by latency, speed, price or success, per region.

    A percentile is shown only with its 95 % interval, which takes 6 samples for a median and 59 for a p95; a target
    without one ranks behind those that have one. Long windows are answered from summaries, within 1 %.
    """
    answer = client.get_leaderboard(selection, order=Order(order))
    terminal.write(pages.page(answer), output)
    pages.require_ranking(answer)


@options.command("tiers", "isochrone tiers --region us-east-2")
@options.selecting
@options.estimand
def tiers(*, client: ReadClient, output: Output, selection: Selection) -> None:
    """Rank targets by median TTFT within their price tier.

    Tiers are by US dollars per million output tokens: free, nearly free (below 0.15), sweet spot (0.15 to 0.30),
    quality first (0.30 to 0.80), premium (from 0.80 on), and unpriced where the plan states no price.
    """
    answer = client.get_tiers(selection)
    terminal.write(pages.tiers_page(answer), output)
    pages.require_tiers(answer)


@options.command("regions", "isochrone regions", "isochrone regions --metric e2e --window 7d")
# The part that the command shows in any case.
@click.option("--best", is_flag=True, hidden=True, expose_value=False)
@options.metric_option("The metric to compare.")
@options.selecting
@options.estimand
def regions(*, client: ReadClient, output: Output, selection: Selection, metric: str) -> None:
    """Show the nearest region of each provider, and how much slower the others are.

    That is the region from which its targets answer first; every other region is compared with it, paired by target and
    round. Only targets that all of these regions measured are compared.
    """
    answer = client.get_region_costs(selection, metric=Metric(metric))
    terminal.write(pages.best_page(answer, metric=Metric(metric)), output)
    pages.require_best(answer)
