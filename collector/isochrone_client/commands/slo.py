"""`isochrone slo`: which targets are fast enough for which use, per region."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.pages import latency_targets
from isochrone_client.terminal import Output
from isochrone_wire.answers import Selection

_EXAMPLES = ("isochrone slo --region us-east-2 --window 24h", "isochrone slo --use voice --use code")


@click.command("slo", epilog=options.example(*_EXAMPLES))
@click.option(
    "--use",
    "uses",
    multiple=True,
    metavar="USE",
    help="Only this use: edge, translation, voice, code, chat, web, inline, step, agent. Can be given several times.",
)
@options.selecting
def slo(
    *,
    collector: Collector,
    timeout_us: int,
    output: Output,
    selection: Selection,
    uses: tuple[str, ...],
) -> None:
    """Show which targets are fast enough for which use, per region.

    A target meets the latency target of a use when 95 % of the requests are within its limit. That is decided on the
    95 % interval of the percentile: yes if all of it is within, no if all of it is beyond, else maybe; below 59 samples
    it is unknown. Timeouts count as too slow; other failures have no latency, and a note counts them if they are more
    than 5 %. With one --use the percentiles are shown. The objective of a route includes success: see isochrone routes.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_latency_budgets(selection, uses=uses)
    terminal.write(latency_targets.page(answer), output)
    latency_targets.require_verdict(answer)
