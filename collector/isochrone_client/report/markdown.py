"""A report as Markdown: the sections and tables of the HTML page, without the charts."""

from collections.abc import Iterator

from isochrone_client.render import markdown
from isochrone_client.render.page import RenderOptions
from isochrone_client.report.sections import METHOD, Report, Section, provenance
from isochrone_wire.text import escaped_markdown as escaped


def render_markdown(report: Report) -> str:
    """The Markdown text of a report."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {escaped(report.title)}"
    yield from (f"**{escaped(sentence)}**" for sentence in report.verdict)
    yield "\n".join(f"- {name}: {escaped(text)}" for name, text in report.facts)
    for section in report.sections:
        yield from _section(section)
    yield "## Method and confidence"
    yield from (f"**{name}.** {escaped(text)}" for name, text in METHOD.items())
    yield f"*{escaped(provenance(report))}*"


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.title}"
    if section.lead:
        yield escaped(section.lead)
    if section.missing:
        yield f"> {escaped(section.missing)}"
    yield from filter(None, (markdown.whole(page, RenderOptions()).rstrip("\n") for page in section.pages))
