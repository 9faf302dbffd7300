"""`isochrone report`: all results of a window as one page, HTML or Markdown."""

from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.output_file import STDOUT, open_output
from isochrone_client.pages.cells import no_samples
from isochrone_client.report.answers import ReportRequest
from isochrone_client.report.content import build_report
from isochrone_client.report.html import render_html
from isochrone_client.report.markdown import render_markdown
from isochrone_client.report.sections import Report
from isochrone_client.window import parse_window
from isochrone_common.cli.command_line import output_option
from isochrone_wire.answers import Metric, Selection

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
_EXAMPLES = ("isochrone report --file report.html", "isochrone report --window 'last week' --output markdown")
_FORMATS = ("html", "markdown")
_FORMAT_OF = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}
# Sections that have rows without any sample.
_ALWAYS = ("coverage", "vantages", "incidents", "routes")


@click.command("report", epilog=options.example(*_EXAMPLES))
@output_option(
    *_FORMATS,
    default=None,
    help="html is one page that needs nothing else.  [default: the ending of the file's name; markdown without one]",
)
@options.file(default=STDOUT, help="The file to write; an existing one is replaced.  [default: standard output]")
@click.option("--html", type=_FILE, hidden=True)
@click.option("--markdown", type=_FILE, is_flag=False, flag_value=STDOUT, hidden=True)
@options.baseline
@options.metric
@options.regions
@options.targets
@options.window
@options.asking
@options.verdict
def report(
    *,
    collector: Collector,
    timeout_us: int,
    output: str | None,
    path: Path,
    html: Path | None,
    markdown: Path | None,
    baseline: str,
    metric: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    window: str,
) -> None:
    """Write a report: a verdict, all targets and regions, charts over time, incidents, differentials, routes and more.

    The HTML page loads nothing, runs no script, fits a phone and can be printed. Sections that the collector cannot
    answer are left out, with the reason. The file is written completely or not at all.
    """
    files = _files(output, path, html=html, markdown=markdown)
    now = now_at()
    selection = Selection(window=parse_window(window, now_at=now), regions=regions, targets=targets)
    request = ReportRequest(selection=selection, metric=Metric(metric), baseline=baseline, now_at=now)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        made = build_report(client, request, collector=str(collector), progress=terminal.progress)
    for kind, file in files:
        _write(file, render_html(made) if kind == "html" else render_markdown(made))
    _require_rows(made)


def _files(output: str | None, path: Path, *, html: Path | None, markdown: Path | None) -> list[tuple[str, Path]]:
    """The formats to write and their files; --html FILE and --markdown [FILE] are former spellings.

    Raises `click.UsageError` if --output contradicts a former spelling, and as `options.file_format` does.
    """
    former = [(kind, file) for kind, file in (("html", html), ("markdown", markdown)) if file is not None]
    if former and output and [output] != [kind for kind, _ in former]:
        raise click.UsageError(f"name one format with --output: {', '.join(_FORMATS)}")
    return former or [(options.file_format(output, path, _FORMAT_OF, default="markdown"), path)]


def _write(path: Path, text: str) -> None:
    with open_output(path, force=True) as file:
        file.write(text.encode())
    if path != STDOUT:
        terminal.remark(f"written: {path}")


def _require_rows(made: Report) -> None:
    """Raises `NoSamplesError` if the report has nothing but headings."""
    if made.span is None and all(section.is_empty for section in made.sections if section.key not in _ALWAYS):
        raise no_samples(made.window)
