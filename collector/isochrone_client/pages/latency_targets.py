"""Latency targets: a matrix of verdicts per region, target and use; for a single use also goodput and percentile."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from isochrone_client.errors import CollectorError, InsufficientError
from isochrone_client.formats import (
    UNKNOWN,
    amount,
    amount_dollars,
    between,
    milliseconds,
    number,
    span,
)
from isochrone_client.pages.cells import Footnotes, interval_of, no_samples, value_of, worth
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page, row_record, wire_fields
from isochrone_wire.insights import Eligible, LatencyBudget, LatencyBudgetList
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.text import ESTIMAND

_FORMAT = FORMATS["LatencyBudgetList"]
_WORD_OF = {Eligible.YES: "yes", Eligible.MAYBE: "maybe", Eligible.NO: "no", Eligible.UNKNOWN: "?"}
_STYLE_OF = {Eligible.YES: "green", Eligible.MAYBE: "yellow", Eligible.NO: "red", Eligible.UNKNOWN: "dim"}
# The uses that are left out on a narrow screen: first those that nearly every target meets.
_PRIORITY_OF = {"agent": 6, "step": 5, "web": 4, "edge": 3, "translation": 2, "inline": 1}
_BEST_FIRST = (Eligible.YES, Eligible.MAYBE, Eligible.NO)
_MEANING = (
    "yes: the whole 95 % interval of the share in time is at least {share} %; no: it is below; maybe: neither; "
    "?: too few samples"
)
_FEW_INDEPENDENT = re.compile(r"^\d+ samples ≈ \d+ independent, of (\d+)$")
_IN_TIME = "in time: of all planned requests; failed, timed-out and throttled ones are not"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """One target from one region, with the verdict of every use; `hour` is that of the day, `None` for all."""

    region: str
    target: str
    hour: int | None = None
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
    shown = answer.budgets if len(uses) == 1 else [replace(row, reason=_shared(row.reason)) for row in answer.budgets]
    lines = sorted(_lines(shown), key=_key)
    footnotes = Footnotes(verdict.reason for line in lines for verdict in line.verdicts)
    numbers = _numbers(uses[0], footnotes) if len(uses) == 1 else _matrix(uses, footnotes)
    return Page(
        schema=_FORMAT.schema,
        title=f"latency targets, rounds between {between(answer.window)}",
        facts=_FORMAT.facts(answer),
        fields=wire_fields(LatencyBudget),
        columns=(_target(lines, footnotes), *_hours(lines), *numbers),
        rows=tuple(lines),
        group=lambda line: f"from {line.region}",
        notes=(*_limits(uses), *_meanings(uses), *((ESTIMAND,) if len(uses) == 1 else ()), *footnotes.notes),
        records=tuple(row_record(row) for row in answer.budgets),
    )


def _shared(reason: str) -> str:
    """The reason without the numbers of a cell, so that cells can share it."""
    return _FEW_INDEPENDENT.sub(r"fewer than \1 independent samples: --use USE shows how many", reason)


def require_goodput(answer: LatencyBudgetList) -> None:
    """Raises `CollectorError` if the collector does not know goodput, and so ignored what was asked for."""
    if any(row.n and row.goodput is None for row in answer.budgets):
        raise CollectorError(
            "the collector is older than this command: it knows no hours, answer lengths, limits and speeds",
            hint="upgrade the collector, or leave out --by, --answer, --limit and --min-speed",
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
    together = sorted(verdicts, key=lambda row: (row.region, row.target, _hour_of(row)))
    return [
        TargetRow(region=region, target=target, hour=None if hour < 0 else hour, verdicts=tuple(rows))
        for (region, target, hour), rows in groupby(together, key=lambda row: (row.region, row.target, _hour_of(row)))
    ]


def _hour_of(row: LatencyBudget) -> int:
    return -1 if row.hour is None else row.hour


def _key(line: TargetRow) -> tuple[str, list[int], float, str, int]:
    """By region, then by the number of targets met, then by the first quantile; hours of the day in their order."""
    if line.hour is not None:
        return (line.region, [], 0.0, line.target, line.hour)
    first = line.verdicts[0].quantile
    counts = [sum(verdict.eligible is eligible for verdict in line.verdicts) for eligible in _BEST_FIRST]
    return (line.region, [-counts[0], -counts[1], -counts[2]], first.value if first else float("inf"), line.target, 0)


def _limits(uses: Sequence[LatencyBudget]) -> list[str]:
    """The limited quantity of each use: `limit on ttft: voice, code; on e2e: step`."""
    of: dict[str, list[str]] = {}
    for row in uses:
        of.setdefault(_quantity(row), []).append(row.use)
    parts = [f"{what}: {', '.join(names)}" for what, names in of.items()]
    return [f"limit on {'; on '.join(parts)}"] if parts else []


def _quantity(row: LatencyBudget) -> str:
    """`ttft`, `e2e of 500 tokens`, `ttft at 30 tokens/s or more`."""
    length = f" of {row.answer_tokens} tokens" if row.answer_tokens else ""
    speed = f" at {number(row.min_tokens_per_second)} tokens/s or more" if row.min_tokens_per_second else ""
    return f"{row.metric}{length}{speed}"


def _meanings(uses: Sequence[LatencyBudget]) -> list[str]:
    return [
        _IN_TIME,
        *(_MEANING.format(share=share) for share in dict.fromkeys(number(100 * row.share) for row in uses)),
    ]


def _matrix(uses: Sequence[LatencyBudget], footnotes: Footnotes) -> tuple[Column[TargetRow], ...]:
    return tuple(
        replace(_verdict(use.use, unit=span(use.limit_us), footnotes=footnotes), priority=_PRIORITY_OF.get(use.use, 0))
        for use in uses
    )


def _numbers(use: LatencyBudget, footnotes: Footnotes) -> tuple[Column[TargetRow], ...]:
    quantile = f"{use.metric} p{number(100 * use.share)}"
    return (
        Column(heading="in time", unit="%", text=_in_time),
        Column(heading="interval", unit="95 %, %", text=_in_time_interval),
        Column(
            heading=quantile,
            unit="ms",
            text=lambda line: amount(milliseconds(value_of(_only(line).quantile))),
            scale="latency",
            priority=1,
        ),
        Column(
            heading="interval",
            unit="95 %, ms",
            text=lambda line: interval_of(_only(line).quantile, milliseconds),
            scale="latency",
            priority=4,
        ),
        _verdict(use.use, unit=span(use.limit_us), footnotes=footnotes),
        Column(
            heading="output", unit="$/M", text=lambda line: amount_dollars(_only(line).usd_per_m_output), priority=2
        ),
        Column(
            heading="n ≈\nindependent",
            text=lambda line: worth(_only(line).n, _only(line).n_eff),
            priority=3,
        ),
    )


def _target(lines: Sequence[TargetRow], footnotes: Footnotes) -> Column[TargetRow]:
    return target_column(lines, lambda line: line.target, mark=lambda line, name: footnotes.marked(name, line.remark))


def _hours(lines: Sequence[TargetRow]) -> tuple[Column[TargetRow], ...]:
    if all(line.hour is None for line in lines):
        return ()
    return (Column(heading="hour", unit="UTC", text=lambda line: UNKNOWN if line.hour is None else f"{line.hour:02}"),)


def _in_time(line: TargetRow) -> str:
    goodput = _only(line).goodput
    return UNKNOWN if goodput is None else number(100 * goodput.value, decimals=1)


def _in_time_interval(line: TargetRow) -> str:
    goodput = _only(line).goodput
    if goodput is None:
        return UNKNOWN
    return " … ".join(number(100 * bound, decimals=1) for bound in (goodput.low, goodput.high))


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
