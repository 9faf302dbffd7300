"""What a report is made of before it is HTML or Markdown: sections, each an answer with a sentence that leads to it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isochrone_client.formats import interval, milliseconds, minute, number, share
from isochrone_client.render.page import Page
from isochrone_client.report.tables import ChartBuilder
from isochrone_wire.answers import CoverageList, Decision, Differential, DifferentialList, Metric, Window

_MS = "ms"
_MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One question of a report with its answer: `key` is its anchor, `lead` a sentence or two, `pages` the tables.

    `missing` says why there is no answer, where there is none. `draw` adds drawings to the first page.
    """

    key: str
    title: str
    lead: str = ""
    pages: tuple[Page[Any], ...] = ()
    draw: ChartBuilder | None = None
    missing: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it to read."""
        return not any(page.rows for page in self.pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report: its window, when and of which collector it was made (microseconds since the epoch), and its sections.

    `facts` are told at its head, by name.
    """

    window: Window
    generated_at: int
    collector: str
    facts: tuple[tuple[str, str], ...] = ()
    summary: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()

    @property
    def title(self) -> str:
        """What it is a report of."""
        return f"LLM latency by region, {self.span}"

    @property
    def span(self) -> str:
        """Its window, for people."""
        return f"{minute(self.window.from_at)} to {minute(self.window.until_at)} UTC"


# How sure all this is, in words that hold for every report.
METHOD = {
    "Shifts": (
        "A shift is region minus baseline: the Hodges-Lehmann estimate over the rounds in which both have a value, so "
        "that what slows a provider down everywhere at once cancels out. Its 95 % interval comes from the signed-rank "
        "distribution, and is widened where neighbouring rounds resemble each other: n rounds are then worth fewer."
    ),
    "Decisions": (
        "Faster and slower need an interval off zero and a shift that reaches the margin (20 ms or 5 % of the "
        "baseline, whichever is larger). Equivalent means that the whole interval lies within the margin. Everything "
        "else is undecided, and the reason is given. Over many pairs, false discoveries are held at 5 % "
        "(Benjamini-Hochberg)."
    ),
    "Percentiles": (
        "Nearest rank, with the interval of their order statistics; where there are too few samples for one, none is "
        "shown. A timeout counts as longer than anything measured; throttled and skipped rounds are counted apart."
    ),
    "Unknown": "A dash means not known. It is never zero.",
}


def facts(
    *, baseline: str, metric: Metric, plan_version: int, targets: int, coverage: CoverageList | None
) -> tuple[tuple[str, str], ...]:
    """What stands at the head of a report besides its window."""
    told = [
        ("baseline", baseline),
        ("compared by", str(metric)),
        ("plan", f"version {plan_version}, {targets} targets" if plan_version else "none applied"),
    ]
    if coverage is not None and coverage.coverage:
        planned = sum(row.planned for row in coverage.coverage)
        recorded = sum(row.recorded for row in coverage.coverage)
        vantages = len({row.vantage for row in coverage.coverage})
        part = f"{recorded} of {planned} planned rounds ({share(recorded, planned)} %)"
        told.append(("recorded", f"{part} by {_counted(vantages, 'vantage')}"))
    return tuple(told)


def summary(answer: DifferentialList) -> tuple[str, ...]:
    """A sentence or two per region: how many targets are decided which way, and where it matters most."""
    regions = dict.fromkeys(row.region for row in answer.differentials)
    return tuple(_of_region([row for row in answer.differentials if row.region == region]) for region in regions)


def _of_region(rows: Sequence[Differential]) -> str:
    counts = Counter(row.decision for row in rows)
    counted = ", ".join(f"{counts[decision]} {decision}" for decision in Decision if counts[decision])
    first = rows[0]
    text = f"From {first.region} against {first.baseline}, of {_counted(len(rows), 'target')}: {counted}."
    decided = sorted((row for row in rows if row.decision in (Decision.FASTER, Decision.SLOWER)), key=_size)
    if not decided:
        return text
    return f"{text} Furthest apart: {'; '.join(_shift(row) for row in decided[-_MOST:][::-1])}."


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _size(row: Differential) -> float:
    return abs(row.shift or 0.0)


def _shift(row: Differential) -> str:
    of, unit = (milliseconds, _MS) if row.unit == "us" else (lambda value: value, row.unit)
    bounds = interval(of(row.shift_low), of(row.shift_high), signed=True)
    return f"{row.target} {number(of(row.shift), signed=True)} {unit} ({bounds})"


def made(report: Report) -> str:
    """When, and of what, a report was made."""
    return f"made {minute(report.generated_at)} UTC by isochrone of the collector {report.collector}"
