"""`isochrone budgets`: which targets are fast enough for what, from where."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.pages import latency_targets as budget_pages
from isochrone_wire.answers import Selection

_EXAMPLES = ("isochrone budgets --region us-east-2 --window 24h", "isochrone budgets --use voice --use code")


@click.command("budgets", epilog=options.example(*_EXAMPLES))
@click.option(
    "--use",
    "uses",
    multiple=True,
    metavar="USE",
    help="Only this use: edge, translation, voice, code, chat, web, inline, step, agent. Can be given several times.",
)
@options.selecting
def budgets(
    *,
    collector: Collector,
    timeout_us: int,
    output: str,
    selection: Selection,
    uses: tuple[str, ...],
) -> None:
    """Show which targets are fast enough for which use, per region.

    A use is kept when 95 % of the requests are within its limit, and that is decided on the interval of the percentile:
    yes when all of it is within, no when all of it is beyond, maybe between; under 59 samples nobody knows. Timeouts
    count as too slow. With one --use the percentiles are shown.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_latency_budgets(selection, uses=uses)
    terminal.write(budget_pages.page(answer), output)
    budget_pages.require_verdict(answer)
