"""`isochrone diff`: regions against a baseline."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import differentials
from isochrone_client.pages import explain as stories
from isochrone_client.pages.targets import require_baseline
from isochrone_client.window import parse_window
from isochrone_wire.answers import Decision, DifferentialList, Metric, Selection

_FOR_PROGRAMS = ("json", "csv")


@click.command(
    "diff",
    epilog=options.example(
        "isochrone diff --against ap-southeast-1 --metric ttft --window 24h",
        "isochrone diff --baseline us-east --explain kimi-k2.5",
    ),
)
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
@click.option(
    "--explain",
    metavar="TARGET",
    help="Tell the story of one target in sentences: how much, how sure, where from, what would help.",
)
@options.reading
def diff(
    *,
    collector: Collector,
    timeout_us: int,
    output: str,
    window: str,
    baseline: str | None,
    against: tuple[str, ...],
    metric: str,
    targets: tuple[str, ...],
    sort: str,
    only: str | None,
    explain: str | None,
) -> None:
    """Compare regions with a baseline, target by target.

    Values are paired by round. The shift is region minus baseline, with its 95 % interval; a shift that the samples
    cannot settle is undecided, and the reason stands below the table. Rounds are counted, and what they are worth
    where neighbouring rounds resemble each other.
    """
    if explain is not None and targets:
        raise click.UsageError("--explain names the target itself; leave --target out")
    now = now_at()
    selection = Selection(window=parse_window(window, now_at=now), targets=(explain,) if explain else targets)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        reference = baseline or require_baseline(client.list_targets())
        answer = client.get_differentials(
            selection, baseline=reference, against=against, metric=Metric(metric), explain=explain is not None
        )
    if explain is not None:
        _tell(answer, metric=Metric(metric), now_at=now, output=output)
        differentials.require_decision(answer, answer.differentials, baseline=reference, only=None)
        return
    rows = differentials.select_rows(answer, sort=sort, only=only)
    terminal.write(differentials.page(answer, rows, metric=Metric(metric), now_at=now), output)
    differentials.require_decision(answer, rows, baseline=reference, only=only)


def _tell(answer: DifferentialList, *, metric: Metric, now_at: int, output: str) -> None:
    """The story for people, with the table of phases where there are any; everything for programs."""
    if output in _FOR_PROGRAMS:
        terminal.write(stories.records_page(answer, metric=metric, now_at=now_at), output)
        return
    terminal.write(stories.page(answer, now_at=now_at), output)
    phases = stories.phases_page(answer)
    if phases.rows:
        terminal.write_blank()
        terminal.write(phases, output)
