import click

from isochrone_client import completion, terminal
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.pages import differentials
from isochrone_client.pages.cells import require_baseline
from isochrone_client.terminal import Output
from isochrone_client.window import now_at
from isochrone_common.cli.command_line import Choice
from isochrone_wire.answers import Decision, Metric, Selection, Window
from isochrone_wire.queries.differential_order import DECIDED, SORTS, select_rows


@options.command(
    "diff",
    "isochrone diff --against ap-southeast-1 --metric ttft --window 24h",
    "isochrone diff --baseline us-east --explain kimi-k2.5",
    "isochrone diff --window 1h --fields target,region,shift,decision --output csv",
)
@options.baseline
@options.region_option(
    "--against", multiple=True, help="The region to compare. Can be given several times.  [default: every other region]"
)
@options.metric
@options.targets
@options.window
@click.option(
    "--sort",
    type=Choice(SORTS),
    default="difference",
    show_default=True,
    help="difference and percent put the target where the region does best first.",
)
@click.option(
    "--only",
    type=Choice([DECIDED, *(decision.value for decision in Decision)]),
    help="Only differentials with this decision; decided means all but undecided.",
)
@click.option(
    "--explain",
    metavar="TARGET",
    shell_complete=completion.targets,
    help="Explain one target in sentences: how much, how certain, where from, what would help.",
)
@options.reading
@options.verdict
@options.estimand
@options.client
def diff(
    *,
    client: ReadClient,
    output: Output,
    window: Window,
    baseline: str,
    against: tuple[str, ...],
    metric: str,
    targets: tuple[str, ...],
    sort: str,
    only: str | None,
    explain: str | None,
) -> None:
    """Compare regions with a baseline, target by target.

    Values are paired by round. The difference is region minus baseline: the pseudomedian of the rounds' differences
    (shift in JSON) with its 95 % interval. If the samples cannot settle it, it is undecided, and if the medians or most
    rounds contradict it, it is mixed; the reason is below the table. `60 ≈ 12` are 60 rounds that are worth 12
    independent ones, because neighbouring rounds resemble each other. Four regions or more are columns of one table,
    with value and difference; with --wide each has a table of its own.
    """
    if explain is not None and targets:
        raise click.UsageError("--explain names the target itself; leave --target out")
    now, selection = now_at(), Selection(window=window, targets=(explain,) if explain else targets)
    reference = baseline or require_baseline(client.get_baseline())
    answer = client.get_differentials(
        selection, baseline=reference, against=against, metric=Metric(metric), explain=explain is not None
    )
    if explain is None:
        rows = select_rows(answer, sort=sort, only=only)
        if output.is_for_people and not output.wide and differentials.has_many_regions(rows):
            width = terminal.render_options().width
            terminal.write(differentials.in_one_table(answer, rows, sort=sort, width=width, now_at=now), output)
        else:
            terminal.write(differentials.page(answer, rows, metric=Metric(metric), now_at=now), output)
        differentials.require_decision(answer, rows, baseline=reference, only=only)
        return
    from isochrone_client.pages import explanation as stories  # noqa: PLC0415  # only for --explain

    if output.is_for_people:
        terminal.write(stories.explanation_page(answer, now_at=now), output)
        phases = stories.phases_page(answer)
        click.echo("\n" if phases.rows else "", nl=False)
        terminal.write(phases, output)
    else:
        terminal.write(stories.records_page(answer, metric=Metric(metric), now_at=now), output)
    differentials.require_decision(answer, answer.differentials, baseline=reference, only=None)
