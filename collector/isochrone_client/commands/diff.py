"""`isochrone diff`: regions against a baseline."""

import click

from isochrone_client import terminal
from isochrone_client.address import Whom
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import differentials
from isochrone_client.pages.targets import require_baseline
from isochrone_client.window import parse_window
from isochrone_wire.answers import Decision, Metric, Selection


@click.command("diff", epilog=options.example("isochrone diff --against ap-southeast-1 --metric ttft --window 24h"))
@click.option("--baseline", metavar="REGION", help="The region to compare with.  [default: the plan's]")
@click.option(
    "--against",
    multiple=True,
    metavar="REGION",
    help="The region to compare. Can be given several times.  [default: every other region]",
)
@click.option(
    "--metric", type=click.Choice([metric.value for metric in Metric]), default=Metric.TTFT.value, show_default=True
)
@options.targets
@options.window
@click.option(
    "--sort",
    type=click.Choice(differentials.SORTS),
    default="shift",
    show_default=True,
    help="shift and percent: where the region does best first.",
)
@click.option(
    "--only",
    type=click.Choice([differentials.DECIDED, *(decision.value for decision in Decision)]),
    help="Only differentials with this decision; decided: all but the undecided.",
)
@options.reading
def diff(
    *,
    collector: Whom,
    timeout_us: int,
    output: str,
    window: str,
    baseline: str | None,
    against: tuple[str, ...],
    metric: str,
    targets: tuple[str, ...],
    sort: str,
    only: str | None,
) -> None:
    """Compare regions with a baseline, target by target.

    Values are paired by round. The shift is region minus baseline, with its 95 % interval; a shift that the samples
    cannot settle is undecided, and the reason stands below the table.
    """
    now = now_at()
    selection = Selection(window=parse_window(window, now_at=now), targets=targets)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        reference = baseline or require_baseline(client.list_targets())
        answer = client.get_differentials(selection, baseline=reference, against=against, metric=Metric(metric))
    rows = differentials.arranged(answer, sort=sort, only=only)
    terminal.write(differentials.page(answer, rows, metric=Metric(metric), now_at=now), output)
    differentials.require_decision(answer, rows, baseline=reference, only=only)
