"""Latency targets: a matrix of verdicts per region, target and use; for a single use also the percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, amount, amount_dollars, between, milliseconds, number, span
from isochrone_client.pages.footnotes import Footnotes
from isochrone_client.pages.insufficient import no_samples
from isochrone_client.pages.quantiles import interval_of, value_of
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import row_record, wire_fields
from isochrone_wire.insights import Eligible, LatencyBudget, LatencyBudgetList
from isochrone_wire.json_format import to_json_value

SCHEMA = "isochrone.budgets/1"
_WORD_OF = {Eligible.YES: "yes", Eligible.MAYBE: "maybe", Eligible.NO: "no", Eligible.UNKNOWN: "?"}
_STYLE_OF = {Eligible.YES: "green", Eligible.MAYBE: "yellow", Eligible.NO: "red", Eligible.UNKNOWN: "dim"}
# The uses that are left out on a narrow screen: first those that nearly every target meets.
_PRIORITY_OF = {"agent": 6, "step": 5, "web": 4, "edge": 3, "translation": 2, "inline": 1}
_BEST_FIRST = (Eligible.YES, Eligible.MAYBE, Eligible.NO)
_MEANING = "yes: the whole 95 % interval is within the limit; no: beyond it; maybe: neither; ?: too few samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """One target from one region, with the verdict of every use."""

    region: str
    target: str
    verdicts: tuple[LatencyBudget, ...]

    def of(self, use: str) -> LatencyBudget | None:
        """The verdict of one use."""
        return next((verdict for verdict in self.verdicts if verdict.use == use), None)

    @property
    def remark(self) -> str:
        """The reason that all uses share; empty if they differ."""
        reasons = {verdict.reason for verdict in self.verdicts}
        return reasons.pop() if len(reasons) == 1 else ""


def page(answer: LatencyBudgetList) -> Page[TargetRow]:
    """The page of an answer, one table per region; programs get a record per use."""
    uses = tuple({row.use: row for row in answer.budgets}.values())
    lines = sorted(_lines(answer.budgets), key=_key)
    footnotes = Footnotes(verdict.reason for line in lines for verdict in line.verdicts)
    numbers = _numbers(uses[0], footnotes) if len(uses) == 1 else _matrix(uses, footnotes)
    return Page(
        schema=SCHEMA,
        title=f"latency targets, rounds between {between(answer.window)}",
        facts={"window": to_json_value(answer.window)},
        fields=wire_fields(LatencyBudget),
        columns=(_target(lines, footnotes), *numbers),
        rows=tuple(lines),
        group=lambda line: f"from {line.region}",
        notes=(*_limits(uses), _MEANING, *footnotes.notes),
        records=tuple(row_record(row) for row in answer.budgets),
    )


def require_verdict(answer: LatencyBudgetList) -> None:
    """Raises `InsufficientError` if there are too few samples for any verdict."""
    if not answer.budgets:
        raise no_samples(answer.window)
    if all(row.eligible is Eligible.UNKNOWN for row in answer.budgets):
        most = max(answer.budgets, key=lambda row: row.n)
        raise InsufficientError(
            f"no latency target has a verdict yet: at most {most.reason}",
            hint="wait for more rounds or use a longer --window; see `isochrone coverage`",
        )


def _lines(verdicts: Sequence[LatencyBudget]) -> list[TargetRow]:
    together = sorted(verdicts, key=lambda row: (row.region, row.target))
    return [
        TargetRow(region=region, target=target, verdicts=tuple(rows))
        for (region, target), rows in groupby(together, key=lambda row: (row.region, row.target))
    ]


def _key(line: TargetRow) -> tuple[str, list[int], float, str]:
    """By region, then by the number of targets met, then by the first quantile."""
    first = line.verdicts[0].quantile
    counts = [sum(verdict.eligible is eligible for verdict in line.verdicts) for eligible in _BEST_FIRST]
    return (line.region, [-counts[0], -counts[1], -counts[2]], first.value if first else float("inf"), line.target)


def _limits(uses: Sequence[LatencyBudget]) -> list[str]:
    """The limited quantity of each use: `p95 of ttft: voice, code; p95 of e2e: step`."""
    of: dict[str, list[str]] = {}
    for row in uses:
        of.setdefault(f"p{number(100 * row.share)} of {row.metric}", []).append(row.use)
    return ["; ".join(f"{what}: {', '.join(names)}" for what, names in of.items())] if of else []


def _matrix(uses: Sequence[LatencyBudget], footnotes: Footnotes) -> tuple[Column[TargetRow], ...]:
    return tuple(
        replace(_verdict(use.use, unit=span(use.limit_us), footnotes=footnotes), priority=_PRIORITY_OF.get(use.use, 0))
        for use in uses
    )


def _numbers(use: LatencyBudget, footnotes: Footnotes) -> tuple[Column[TargetRow], ...]:
    quantile = f"{use.metric} p{number(100 * use.share)}"
    return (
        Column(
            heading=quantile,
            unit="ms",
            text=lambda line: amount(milliseconds(value_of(_only(line).quantile))),
            scale="latency",
        ),
        Column(
            heading="interval",
            unit="95 %, ms",
            text=lambda line: interval_of(_only(line).quantile, milliseconds),
            scale="latency",
            priority=1,
        ),
        _verdict(use.use, unit=span(use.limit_us), footnotes=footnotes),
        Column(
            heading="output", unit="$/M", text=lambda line: amount_dollars(_only(line).usd_per_m_output), priority=2
        ),
        Column(heading="n", text=lambda line: str(_only(line).n), priority=3),
    )


def _target(lines: Sequence[TargetRow], footnotes: Footnotes) -> Column[TargetRow]:
    return target_column(lines, lambda line: line.target, mark=lambda line, name: footnotes.marked(name, line.remark))


def _only(line: TargetRow) -> LatencyBudget:
    return line.verdicts[0]


def _verdict(use: str, *, unit: str, footnotes: Footnotes) -> Column[TargetRow]:
    def text(line: TargetRow) -> str:
        row = line.of(use)
        if row is None:
            return UNKNOWN
        return footnotes.marked(_WORD_OF[row.eligible], "" if line.remark else row.reason)

    def style(line: TargetRow) -> str:
        row = line.of(use)
        return _STYLE_OF[row.eligible] if row is not None else ""

    return Column(heading=use, unit=unit, text=text, style=style)
