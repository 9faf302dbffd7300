"""The structure of a report, independent of its format: sections with a lead and tables."""

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
    """One section of a report: `key` is its anchor, `lead` a sentence or two, `pages` its tables.

    `missing` is the reason for an absent answer. `chart` adds charts to the first page.
    """

    key: str
    title: str
    lead: str = ""
    pages: tuple[Page[Any], ...] = ()
    chart: ChartBuilder | None = None
    missing: str = ""

    @property
    def is_empty(self) -> bool:
        """True if its tables have no rows."""
        return not any(page.rows for page in self.pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report: its window, the instant it was generated (microseconds since the epoch), its collector and sections.

    `facts` are names and values for its head.
    """

    window: Window
    generated_at: int
    collector: str
    facts: tuple[tuple[str, str], ...] = ()
    summary: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()

    @property
    def title(self) -> str:
        """The title with the window."""
        return f"LLM latency by region, {self.span}"

    @property
    def span(self) -> str:
        """The window for people."""
        return f"{minute(self.window.from_at)} to {minute(self.window.until_at)} UTC"


# The method, the same for every report.
METHOD = {
    "Shifts": (
        "A shift is region minus baseline: the Hodges-Lehmann estimate over the rounds in which both have a value, so "
        "that a slowdown of a provider in all regions at once cancels out. Its 95 % interval comes from the "
        "signed-rank distribution and is widened if neighbouring rounds are correlated: n rounds then count as fewer."
    ),
    "Decisions": (
        "Faster and slower require an interval that excludes zero and a shift that reaches the margin (20 ms or 5 % of "
        "the baseline, whichever is larger). Equivalent means that the whole interval lies within the margin. "
        "Everything else is undecided, with a reason. Across all pairs, the false-discovery rate is limited to 5 % "
        "(Benjamini-Hochberg)."
    ),
    "Percentiles": (
        "Nearest rank, with intervals from order statistics; with too few samples for an interval, no percentile is "
        "shown. A timeout counts as longer than any measured value; throttled and skipped rounds are counted apart."
    ),
    "Unknown": "A dash means unknown, never zero.",
}


def facts(
    *, baseline: str, metric: Metric, plan_version: int, targets: int, coverage: CoverageList | None
) -> tuple[tuple[str, str], ...]:
    """The names and values at the head of a report, besides its window."""
    entries = [
        ("baseline", baseline),
        ("compared by", str(metric)),
        ("plan", f"version {plan_version}, {targets} targets" if plan_version else "none applied"),
    ]
    if coverage is not None and coverage.coverage:
        planned = sum(row.planned for row in coverage.coverage)
        recorded = sum(row.recorded for row in coverage.coverage)
        vantages = len({row.vantage for row in coverage.coverage})
        part = f"{recorded} of {planned} planned rounds ({share(recorded, planned)} %)"
        entries.append(("recorded", f"{part} by {_counted(vantages, 'vantage')}"))
    return tuple(entries)


def summary(answer: DifferentialList) -> tuple[str, ...]:
    """One or two sentences per region: the number of targets per decision, and the largest shifts."""
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
    return f"{text} Largest shifts: {'; '.join(_shift(row) for row in decided[-_MOST:][::-1])}."


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _size(row: Differential) -> float:
    return abs(row.shift or 0.0)


def _shift(row: Differential) -> str:
    of, unit = (milliseconds, _MS) if row.unit == "us" else (lambda value: value, row.unit)
    bounds = interval(of(row.shift_low), of(row.shift_high), signed=True)
    return f"{row.target} {number(of(row.shift), signed=True)} {unit} ({bounds})"


def provenance(report: Report) -> str:
    """The instant and the collector of a report, as a sentence."""
    return f"generated at {minute(report.generated_at)} UTC by isochrone from the collector {report.collector}"
