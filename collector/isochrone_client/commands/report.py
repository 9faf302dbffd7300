"""`isochrone report`: everything a window says, as one page to keep or to send."""

from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.errors import InsufficientError
from isochrone_client.export.output_file import STDOUT, open_output
from isochrone_client.formats import between
from isochrone_client.report.content import ReportRequest, build_report
from isochrone_client.report.html import render_html
from isochrone_client.report.markdown import render_markdown
from isochrone_client.report.sections import Report
from isochrone_client.window import parse_window
from isochrone_wire.answers import Metric, Selection

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
_EXAMPLES = ("isochrone report --html report.html", "isochrone report --markdown --window 'last week'")


@click.command("report", epilog=options.example(*_EXAMPLES))
@click.option("--html", type=_FILE, metavar="FILE", help="Write one page of HTML that needs nothing else; - is stdout.")
@click.option(
    "--markdown",
    type=_FILE,
    is_flag=False,
    flag_value=STDOUT,
    metavar="[FILE]",
    help="Write Markdown, to stdout without a FILE; this is also what becomes of a report without --html.",
)
@click.option("--baseline", default="", metavar="REGION", help="The region to compare with.  [default: the plan's]")
@click.option(
    "--metric", type=click.Choice([metric.value for metric in Metric]), default=Metric.TTFT.value, show_default=True
)
@options.regions
@options.targets
@options.window
@options.asking
def report(
    *,
    collector: Collector,
    timeout_us: int,
    html: Path | None,
    markdown: Path | None,
    baseline: str,
    metric: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    window: str,
) -> None:
    """Write a report: differentials, where they come from, leaderboards, budgets, tiers, drift and coverage.

    The page loads nothing from anywhere, runs no script, and can be printed. What the collector cannot answer is left
    out, with the reason. A file is there whole or not at all, and replaces an older one.
    """
    now = now_at()
    selection = Selection(window=parse_window(window, now_at=now), regions=regions, targets=targets)
    request = ReportRequest(selection=selection, metric=Metric(metric), baseline=baseline, now_at=now)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        made = build_report(client, request, collector=str(collector), progress=terminal.progress)
    if html is not None:
        _write(html, render_html(made))
    if markdown is not None or html is None:
        _write(markdown or STDOUT, render_markdown(made))
    _require_rows(made)


def _write(path: Path, text: str) -> None:
    with open_output(path, force=True) as file:
        file.write(text.encode())
    if path != STDOUT:
        terminal.remark(f"written: {path}")


def _require_rows(made: Report) -> None:
    """Raises `InsufficientError` when the report has nothing but its headings."""
    if all(section.is_empty for section in made.sections if section.key not in ("coverage", "vantages")):
        raise InsufficientError(
            f"no samples between {between(made.window)}",
            hint="is an agent running? see `isochrone coverage`; a longer --window may reach older samples",
        )
