"""A report as the live page in one file: its modules, its style and the answers are in the document.

The file loads nothing, and runs no script but the page's. Without scripts it shows the matrix and all tables.
"""

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Iterator
from html import escape
from importlib import resources
from typing import Any

from isochrone_client.formats import display_unit, displayed, number
from isochrone_client.pages.matrix import Cell, Matrix, note_of
from isochrone_client.render.page import Page
from isochrone_client.report import METHOD, Report
from isochrone_wire.answers import Decision
from isochrone_wire.json_format import rfc3339

_FILES = resources.files("isochrone_common") / "page"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|class|(?:async )?function) (\w+))", re.MULTILINE)
_TONES = {"green": "good", "red": "bad", "yellow": "warn", "dim": "provider"}
_KEY = (
    ("better1", "faster by less than 20 %"),
    ("better2", "20 to 50 %"),
    ("better3", "more"),
    ("same", "same"),
    ("worse1", "slower by less than 20 %"),
    ("worse2", "20 to 50 %"),
    ("worse3", "more"),
    ("unsure", "undecided"),
)


def render_html(report: Report) -> str:
    """The document of a report."""
    style, script = (_FILES / "page.css").read_text(), "".join(_modules("main.js", set()))
    answers = {"at": rfc3339(report.generated_at), "options": report.options, "answers": report.documents}
    # No text can end the element.
    data = json.dumps(answers, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src {_hashed(script)}; style-src {_hashed(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    verdict = "".join(f'<p class="summary">{escape(sentence)}</p>' for sentence in report.verdict if sentence)
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in report.facts)
    heading = f"<h1>{escape(report.title)}</h1>"
    summary = (
        f'<section class="report" aria-label="summary">{heading}{verdict}<dl class="facts">{facts}</dl></section>\n'
    )
    document = (_FILES / "index.html").read_text()
    parts = {
        '<link rel="icon" href="FOLDER/icon.svg" type="image/svg+xml">': '<link rel="icon" href="data:,">',
        '<link rel="stylesheet" href="FOLDER/page.css">': f"<style>{style}</style>",
        "<!-- modules -->": "",
        '<meta charset="utf-8">': (
            f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
        ),
        '<script type="module" src="FOLDER/main.js"></script>': (
            f'<script type="application/json" id="report">{data}</script>\n<script type="module">{script}</script>'
        ),
        "<title>Isochrone</title>": (
            f'<meta name="referrer" content="no-referrer">\n<title>{escape(report.title)}</title>'
        ),
        '<main id="view"': f'{summary}<main id="view"',
        '<footer id="footer">': f'{_tables(report)}<footer id="footer">',
    }
    for before, after in parts.items():
        document = document.replace(before, after)
    return re.sub(
        r"<noscript>.*</noscript>", lambda _found: _static_matrix(report.matrix, report), document, flags=re.DOTALL
    )


def _modules(name: str, done: set[str]) -> Iterator[str]:
    """Yield a module after those that it imports, each as the value of a function that returns what it exports."""
    done.add(name)
    text = (_FILES / name).read_text()

    def found(path: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))

    for _, path in _IMPORT.findall(text):
        if found(path) not in done:
            yield from _modules(found(path), done)
    body = _IMPORT.sub(
        lambda one: f"const {{{one[1].replace(' as ', ': ')}}} = {_variable(found(one[2]))};\n", _EXPORT.sub("", text)
    )
    yield f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(_EXPORT.findall(text))} }};\n}})();\n"


def _variable(name: str) -> str:
    return f"${re.sub(r'[^a-z]', '_', name)}"


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _static_matrix(matrix: Matrix, report: Report) -> str:
    if not matrix.targets:
        return ""
    columns = (matrix.baseline, *matrix.regions)

    def named(target: str) -> str:
        head, slash, model = target.partition("/")
        provider = f'<span class="provider">{escape(head)}/</span><wbr>' if slash else ""
        return f"{provider}<b>{escape(model or head)}</b>"

    heads = "".join(
        f'<th scope="col">{escape(region)}{"<small>baseline</small>" if region == matrix.baseline else ""}</th>'
        for region in columns
    )
    rows = "".join(
        f'<tr><th scope="row">{named(target)}</th>'
        + "".join(_cell(matrix.cell(target, region), matrix, report) for region in columns)
        + "</tr>"
        for target in matrix.targets
    )
    key = "".join(f'<li><span class="swatch {name}"></span>{text}</li>' for name, text in _KEY)
    name, unit = matrix.metric.display_name, display_unit(matrix.metric.unit)
    title = f"Median {name} and the difference from {matrix.baseline}, {unit}"
    head = f'<thead><tr><th scope="col" class="name">target</th>{heads}</tr></thead>'
    table = f'<table class="matrix">{head}<tbody>{rows}</tbody></table>'
    return f'<p class="note">{escape(title)}</p><ul class="legend">{key}</ul>{_scrolling("matrix", table)}'


def _cell(cell: Cell, matrix: Matrix, report: Report) -> str:
    # The class of a cell, as `differenceClass` of the page's `scales.js` has it.
    row, colour = cell.difference, "unsure"
    if row is None:
        colour = "unsure" if cell.value is None else ""
    elif row.decision in (Decision.SLOWER, Decision.FASTER):
        strength = 1 + sum(abs(row.shift_percent or 0.0) >= limit for limit in (20.0, 50.0))
        colour = f"{'worse' if row.decision is Decision.SLOWER else 'better'}{strength}"
    elif row.decision is Decision.EQUIVALENT:
        colour = "same"
    value = number(displayed(cell.value, matrix.metric.unit), decimals=matrix.decimals) + "?" * cell.is_early
    note = note_of(cell, matrix, now_at=report.generated_at)
    small = f" <small>{escape(note)}</small>" if note else ""
    return f'<td class="cell {colour}"><div>{value}{small}</div></td>'


def _tables(report: Report) -> str:
    sections = "".join(
        f"<h2>{escape(section.title)}</h2>"
        + (f'<p class="empty">{escape(section.missing)}</p>' if section.missing else "")
        + "".join(map(_table, section.pages))
        for section in report.sections[1:]  # the first one is the matrix
    )
    method = "".join(f"<p><b>{escape(name)}.</b> {escape(text)}</p>" for name, text in METHOD.items())
    return (
        f'<section class="report"><details open><summary>All tables of this report</summary>{sections}'
        f'<h2>Method and confidence</h2>{method}</details><p class="note">{escape(report.provenance)}</p></section>\n'
    )


def _table(page: Page[Any]) -> str:
    heads = "".join(
        f'<th scope="col"{_class(column.is_text and "name")}>{escape(column.name)}'
        + (f"<small>{escape(column.unit)}</small>" if column.unit else "")
        + "</th>"
        for column in page.columns
    )
    blocks = []
    for table in page.tables():
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td{_class(column.is_text and 'name', column.prose and 'remarks', tone)}>{escape(text)}</td>"
                for column, text in zip(page.columns, line, strict=True)
                for tone in [_TONES.get(column.style(row))]
            )
            + "</tr>"
            for row, line in zip(table.rows, table.cells, strict=True)
        )
        caption = escape(table.heading or page.title)
        blocks.append(
            _scrolling(
                caption,
                f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>",
            )
        )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in page.notes)
    return "".join(blocks) + notes


def _scrolling(label: str, table: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{table}</div>'


def _class(*names: object) -> str:
    found = " ".join(str(name) for name in names if name)
    return f' class="{found}"' if found else ""
