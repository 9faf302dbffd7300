from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.live_view.answers import Observer, snapshot
from isochrone_client.live_view.screens import View, run
from isochrone_client.live_view.state import WINDOWS, Question, ViewState
from isochrone_client.pages.cells import no_samples
from isochrone_client.pages.matrix import METRICS, SORTS
from isochrone_client.screen import StopRequests, can_be_redrawn
from isochrone_client.terminal import Output
from isochrone_client.window import now_at
from isochrone_common.cli.command_line import Choice, Seconds
from isochrone_wire.answers import Metric
from isochrone_wire.durations import SECOND_US

# The width of a table that is not to be narrowed.
_UNLIMITED = 10_000


@options.command(
    "watch",
    "isochrone watch",
    "isochrone watch --metric e2e --baseline us-east-2 --window 6h",
    "isochrone watch --target 'qwen/*' --output json --follow",
)
@options.metric_option("The metric to show first; m shows the next one.", METRICS)
@options.baseline
@options.regions
@options.targets
@click.option(
    "--window",
    default="1h",
    show_default=True,
    metavar="RANGE",
    help="The rounds that count, as for `isochrone diff`; w and W make it longer and shorter.",
)
@click.option(
    "--sort",
    type=Choice(SORTS),
    default=SORTS[0],
    show_default=True,
    help="value puts the best target of the baseline region first, difference the worst one of any other region.",
)
@click.option(
    "--every",
    "every_s",
    type=Seconds(min=1, max=3600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to ask the collector.",
)
@click.option("--follow", is_flag=True, help="Without a screen: print again and again; json as one document per line.")
@options.printing
@options.verdict
@options.estimand
def watch(
    *,
    collector: Collector,
    timeout_us: int,
    output: Output,
    metric: str,
    baseline: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    window: str,
    sort: str,
    every_s: float,
    follow: bool,
) -> None:
    """Show all targets from all regions on one screen, live.

    Each row is a target, each column a region: the median, its difference to the baseline with the decision, and bars
    of the newest rounds. ? lists the keys. Open incidents and the newest alert are below. The screen stays while the
    collector restarts.

    On a pipe, or with --output json, csv or markdown, it prints one snapshot and ends, or goes on with --follow.
    """
    question = Question(metric=Metric(metric), window=window, baseline=baseline, regions=regions, targets=targets)
    if can_be_redrawn() and output.format == "table" and not output.fields:
        windows = WINDOWS if window in WINDOWS else (window, *WINDOWS)
        state = ViewState(question=question, sort=sort, windows=windows)
        # The client is closed first, which ends a call that the thread waits for.
        with ThreadPoolExecutor(max_workers=1) as beside, ReadClient(collector, timeout_us=timeout_us) as client:
            observer = Observer(client)
            answers, _ = observer.observe(question)
            view = View(collector=str(collector), answers=answers, state=state, now_at=now_at())
            with StopRequests() as stop:
                run(view, observer, stop, beside=beside, every_us=round(every_s * SECOND_US))
        stop.check(results=True)
        return

    def show() -> None:
        answers, _ = observer.observe(question)
        terminal.write(snapshot(answers, sort=sort, width=width), replace(output, repeated=follow))
        if not answers.leaderboard.standings:
            raise no_samples(answers.leaderboard.window)

    width = terminal.render_options().width if output.format == "table" and not output.wide else _UNLIMITED
    with ReadClient(collector, timeout_us=timeout_us) as client:
        observer = Observer(client)
        terminal.repeat(show, every_s=every_s) if follow else show()
