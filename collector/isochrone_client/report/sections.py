"""The structure of a report, independent of its format: sections with a lead and tables."""

from dataclasses import dataclass
from typing import Any

from isochrone_client.formats import between, share
from isochrone_client.render.page import Page
from isochrone_client.report.html_elements import Markup
from isochrone_client.report.tables import ChartBuilder
from isochrone_wire.answers import Metric, Window
from isochrone_wire.fleet import CoverageList
from isochrone_wire.json_format import minute
from isochrone_wire.text import ESTIMAND_SENTENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report: `key` is its anchor, `lead` a sentence or two, `pages` its tables.

    `missing` is the reason for an absent answer. In HTML, `drawing` takes the place of the tables, and `chart` adds
    charts to the first of them.
    """

    key: str
    title: str
    lead: str = ""
    pages: tuple[Page[Any], ...] = ()
    drawing: Markup | None = None
    chart: ChartBuilder | None = None
    missing: str = ""

    @property
    def is_empty(self) -> bool:
        """True if its tables have no rows."""
        return not any(page.rows for page in self.pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report: the requested window, the span of the rounds that have samples (`None` without any), the instant it was
    generated (microseconds since the epoch), its collector and sections.

    `verdict` are its first sentences; `facts` are names and values for its head.
    """

    window: Window
    span: Window | None
    generated_at: int
    collector: str
    verdict: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()

    @property
    def title(self) -> str:
        """The title with the span that has data."""
        if self.span is None:
            return f"LLM latency by region: no samples between {between(self.window)}"
        return f"LLM latency by region, {span_text(self.span)}"


def span_text(span: Window) -> str:
    """`2026-11-20 08:00 to 2026-11-21 08:00 UTC`; the date only once if it is the same."""
    first, last = minute(span.from_at), minute(span.until_at)
    date, _, time = last.partition(" ")
    if first == last:
        return f"{first} UTC"
    return f"{first} to {time if first.startswith(date) else last} UTC"


# The method, the same for every report.
METHOD = {
    "Differences": (
        "A difference is region minus baseline: the Hodges-Lehmann estimate over the rounds in which both have a "
        "value, so that a slowdown of a provider in all regions at once cancels out. Its 95 % interval comes from the "
        "signed-rank distribution and is widened if neighbouring rounds are correlated: n rounds then count as fewer."
    ),
    "Intervals": ESTIMAND_SENTENCE,
    "Decisions": (
        "Faster and slower require an interval that excludes zero and a difference of at least the smallest that "
        "matters (20 ms or 5 % of the baseline, whichever is larger). Equivalent means that the whole interval is "
        "smaller than that. Everything else is undecided, with a reason. Across all pairs, the false-discovery rate is "
        "limited to 5 % (Benjamini-Hochberg)."
    ),
    "Percentiles": (
        "Nearest rank, with intervals from order statistics; with too few samples for an interval, no percentile is "
        "shown. A timeout counts as longer than any measured value; throttled and skipped rounds are counted apart."
    ),
    "Unknown": "A dash means unknown, never zero.",
}


def facts(
    *, window: Window, baseline: str, metric: Metric, plan_version: int, targets: int, coverage: CoverageList | None
) -> tuple[tuple[str, str], ...]:
    """The names and values at the head of a report."""
    entries = [
        ("window", span_text(window)),
        ("baseline", baseline or "none"),
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


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def provenance(report: Report) -> str:
    """The instant and the collector of a report, as a sentence."""
    return f"generated at {minute(report.generated_at)} UTC by isochrone from the collector {report.collector}"
