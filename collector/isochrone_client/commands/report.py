from pathlib import Path

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.output_file import STDOUT, open_output
from isochrone_client.pages.cells import no_samples
from isochrone_client.report import Questions, make_report, render_markdown
from isochrone_client.window import now_at
from isochrone_common.cli.command_line import output_option
from isochrone_wire.answers import Metric, Selection

_FORMAT_OF = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


@options.command(
    "report", "isochrone report --file report.html", "isochrone report --window 'last week' --output markdown"
)
@output_option(
    "html",
    "markdown",
    default=None,
    help="html is one page that needs nothing else.  [default: the ending of the file's name; markdown without one]",
)
@options.file(default=STDOUT, help="The file to write; an existing one is replaced.  [default: standard output]")
@options.baseline
@options.metric
@options.selection
@options.asking
@options.verdict
def report(
    *,
    collector: Collector,
    timeout_us: int,
    selection: Selection,
    output: str | None,
    path: Path,
    baseline: str,
    metric: str,
) -> None:
    """Write a report: a verdict, all targets and regions, incidents, differentials, routes and more.

    HTML is the live page in one file, with the answers in it: it loads nothing, fits a phone, can be printed, and shows
    its tables without scripts, too. Markdown has the tables of the commands one after the other. Sections that the
    collector cannot answer are left out, with the reason. The file is written completely or not at all.
    """
    kind = options.file_format(output, path, _FORMAT_OF, default="markdown")
    with ReadClient(collector, timeout_us=timeout_us) as client:
        asked = Questions(
            client=client,
            selection=selection,
            metric=Metric(metric),
            baseline=baseline,
            now_at=now_at(),
            plan=client.list_targets(),
            with_page=kind == "html",
            progress=terminal.progress,
        )
        made = make_report(asked, collector=str(collector))
    if kind == "html":
        from isochrone_client.offline_page import render_html  # noqa: PLC0415  # only for HTML

        text = render_html(made)
    else:
        text = render_markdown(made)
    with open_output(path, force=True) as file:
        file.write(text.encode())
    if path != STDOUT:
        terminal.remark(f"written: {path}")
    if made.is_empty:
        raise no_samples(selection.window)
