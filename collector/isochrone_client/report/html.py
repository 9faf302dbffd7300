"""A report as one HTML page without scripts or external resources."""

from isochrone_client.report.charts import legend
from isochrone_client.report.html_elements import Markup, element, joined
from isochrone_client.report.sections import METHOD, Report, Section, provenance
from isochrone_client.report.stylesheet import POLICY, SHEET
from isochrone_client.report.tables import tables

# The style sheet is a constant without `<`; escaping its quotes would break it.
_SHEET = Markup(SHEET)


def render_html(report: Report) -> str:
    """The HTML page of a report."""
    page = element("html", _head(report), element("body", _header(report), _main(report), _footer(report)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _head(report: Report) -> Markup:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="referrer", content="no-referrer"),
        element("title", report.title),
        element("link", rel="icon", href="data:,"),
        element("style", _SHEET),
    )


def _header(report: Report) -> Markup:
    terms = [part for name, text in report.facts for part in (element("dt", name), element("dd", text))]
    links = [
        element("li", element("a", section.title, href=f"#{section.key}"))
        for section in (*report.sections, Section(key="method", title="Method and confidence"))
    ]
    return element(
        "header",
        element("h1", report.title),
        *(element("p", sentence, class_="verdict") for sentence in report.verdict),
        element("dl", *terms),
        element("nav", element("ul", *links), aria_label="sections"),
    )


def _main(report: Report) -> Markup:
    return element(
        "main",
        *(_section(section) for section in report.sections),
        _method(),
    )


def _section(section: Section) -> Markup:
    content = [element("p", section.lead)] if section.lead else []
    if section.missing:
        content.append(element("p", section.missing, class_="missing"))
    if section.key == "origins" and not section.is_empty:
        content.append(legend())
    content += [section.drawing] if section.drawing is not None else _tables(section)
    return _with_heading(section.key, section.title, *content)


def _tables(section: Section) -> list[Markup]:
    return [tables(page, chart=None if index else section.chart) for index, page in enumerate(section.pages)]


def _method() -> Markup:
    content = [element("p", element("strong", name), ". ", text) for name, text in METHOD.items()]
    return _with_heading("method", "Method and confidence", *content)


def _with_heading(key: str, title: str, *content: Markup) -> Markup:
    heading = element("h2", title, id=f"{key}-title")
    return element("section", heading, joined(*content), id=key, aria_labelledby=f"{key}-title")


def _footer(report: Report) -> Markup:
    return element("footer", element("p", provenance(report)))
