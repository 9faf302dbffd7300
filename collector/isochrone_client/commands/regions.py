"""`isochrone regions`: the vantages and their state; with `--best` the nearest region of each provider."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import regions as region_pages
from isochrone_client.terminal import Output
from isochrone_client.window import parse_window
from isochrone_wire.answers import Metric, Selection

_EXAMPLES = ("isochrone regions", "isochrone regions --best", "isochrone regions --best --metric e2e --window 7d")


@click.command("regions", epilog=options.example(*_EXAMPLES))
@click.option(
    "--best", is_flag=True, help="Show instead the nearest region of each provider, and how much slower the others are."
)
@options.metric_option("With --best: the metric to compare.")
@options.regions
@options.targets
@options.window
@options.reading
@options.verdict
@options.estimand
def regions(
    *,
    collector: Collector,
    timeout_us: int,
    output: Output,
    best: bool,
    metric: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    window: str,
) -> None:
    """Show which vantages are online, their clocks, spools and plans.

    An online vantage delivers samples. A late one has missed its announced heartbeat; one with "no samples" sends only
    heartbeats; one with "nothing to probe" has no targets. A sample that is neither stored nor waiting nor counted as
    dropped is lost, which is a bug.

    With --best: for each provider the region from which its targets answer first, and how much slower every other
    region is, paired by target and round. Only targets that all of these regions measured are compared; --region,
    --target, --metric and --window apply to --best only.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        if best:
            selection = Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)
            _show_best(client, selection, Metric(metric), output)
            return
        answer = client.list_vantages()
    terminal.write(region_pages.page(answer), output)
    region_pages.require_online(answer)


def _show_best(client: ObservatoryClient, selection: Selection, metric: Metric, output: Output) -> None:
    answer = client.get_region_costs(selection, metric=metric)
    terminal.write(region_pages.best_page(answer, metric=metric), output)
    region_pages.require_best(answer)
