"""Latency targets: a matrix of verdicts per region, target and use; for a single use also goodput and percentile."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, amount_dollars, between, number, span
from isochrone_client.pages import cells
from isochrone_client.render.page import Column, Page, answer_page, row_record
from isochrone_wire.insights import Eligible, LatencyBudget, LatencyBudgetList
from isochrone_wire.text import ESTIMAND

_WORD_OF = {Eligible.YES: "yes", Eligible.MAYBE: "maybe", Eligible.NO: "no", Eligible.UNKNOWN: "?"}
_STYLE_OF = {Eligible.YES: "green", Eligible.MAYBE: "yellow", Eligible.NO: "red", Eligible.UNKNOWN: "dim"}
# The uses that are left out on a narrow screen: first those that nearly every target meets.
_PRIORITY_OF = {"agent": 6, "step": 5, "web": 4, "edge": 3, "translation": 2, "inline": 1}
_FEW_INDEPENDENT = re.compile(r"^\d+ samples ≈ \d+ independent, of (\d+)$")


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
    is_single = len(uses) == 1
    # Without the numbers of a cell, so that cells can share a reason.
    few = r"fewer than \1 independent samples: --use USE shows how many"
    shown = [row if is_single else replace(row, reason=_FEW_INDEPENDENT.sub(few, row.reason)) for row in answer.budgets]
    lines = tuple(sorted(_lines(shown), key=_key))
    footnotes = cells.Footnotes(verdict.reason for line in lines for verdict in line.verdicts)
    hour: Column[TargetRow] = Column(
        "hour", lambda line: UNKNOWN if line.hour is None else f"{line.hour:02}", unit="UTC"
    )
    verdicts = (_verdict(use, footnotes, 0 if is_single else _PRIORITY_OF.get(use.use, 0)) for use in uses)
    return answer_page(
        answer,
        f"latency targets, rounds between {between(answer.window)}",
        (
            cells.target_column(
                lines, lambda line: line.target, mark=lambda line, name: footnotes.marked(name, line.remark)
            ),
            *(() if all(line.hour is None for line in lines) else (hour,)),
            *(_numbers(uses[0], *verdicts) if is_single else verdicts),
        ),
        rows=lines,
        group=lambda line: f"from {line.region}",
        units=dict.fromkeys(("quantile.value", "quantile.low", "quantile.high"), "us"),
        notes=(*_notes(uses), *((ESTIMAND,) if is_single else ()), *footnotes.notes),
        records=tuple(row_record(row) for row in answer.budgets),
    )


def require_verdict(answer: LatencyBudgetList) -> None:
    """Raises `InsufficientError` if there are too few samples for any verdict."""
    if not answer.budgets:
        raise cells.no_samples(answer.window)
    if all(row.eligible is Eligible.UNKNOWN for row in answer.budgets):
        most = max(answer.budgets, key=lambda row: row.n)
        raise InsufficientError(
            f"no latency target has a verdict yet: at most {most.reason}",
            hint="wait for more rounds or use a longer --window; see `isochrone coverage`",
        )


def _lines(verdicts: Sequence[LatencyBudget]) -> Iterator[TargetRow]:
    def key(row: LatencyBudget) -> tuple[str, str, int]:
        return (row.region, row.target, -1 if row.hour is None else row.hour)

    for (region, target, hour), rows in groupby(sorted(verdicts, key=key), key=key):
        yield TargetRow(region=region, target=target, hour=None if hour < 0 else hour, verdicts=tuple(rows))


def _key(line: TargetRow) -> tuple[str, list[int], float, str, int]:
    """By region, then by the number of targets met, then by the first quantile; hours of the day in their order."""
    if line.hour is not None:
        return (line.region, [], 0.0, line.target, line.hour)
    first = line.verdicts[0].quantile
    counts = [
        -sum(verdict.eligible is eligible for verdict in line.verdicts)
        for eligible in (Eligible.YES, Eligible.MAYBE, Eligible.NO)
    ]
    return (line.region, counts, first.value if first else float("inf"), line.target, 0)


def _notes(uses: Sequence[LatencyBudget]) -> Iterator[str]:
    """The limited quantity of each use, `limit on ttft: voice, code; on e2e: step`, and the meaning of verdicts."""
    limited: dict[str, list[str]] = {}
    for row in uses:
        length = f" of {row.answer_tokens} tokens" if row.answer_tokens else ""
        speed = f" at {number(row.min_tokens_per_second)} tokens/s or more" if row.min_tokens_per_second else ""
        limited.setdefault(f"{row.metric}{length}{speed}", []).append(row.use)
    if limited:
        yield "limit on " + "; on ".join(f"{what}: {', '.join(names)}" for what, names in limited.items())
    yield "in time: of all planned requests; failed, timed-out and throttled ones are not"
    for share in dict.fromkeys(number(100 * row.share) for row in uses):
        yield (
            f"yes: the whole 95 % interval of the share in time is at least {share} %; no: it is below; "
            "maybe: neither; ?: too few samples"
        )


def _numbers(use: LatencyBudget, verdict: Column[TargetRow]) -> tuple[Column[TargetRow], ...]:
    def only(line: TargetRow) -> LatencyBudget:
        return line.verdicts[0]

    quantile = f"{use.metric} p{number(100 * use.share)}"
    return (
        *cells.share_columns("in time", lambda line: only(line).goodput),
        cells.quantile_column(
            quantile, lambda line: only(line).quantile, share=use.share, n=lambda line: only(line).n, priority=1
        ),
        cells.interval_column(lambda line: only(line).quantile, share=use.share, priority=4),
        verdict,
        Column("output", lambda line: amount_dollars(only(line).usd_per_m_output), unit="$/M", priority=2),
        Column("n ≈\nindependent", lambda line: cells.worth(only(line).n, only(line).n_eff), priority=3),
    )


def _verdict(use: LatencyBudget, footnotes: cells.Footnotes, priority: int) -> Column[TargetRow]:
    def text(line: TargetRow) -> str:
        row = line.of(use.use)
        if row is None:
            return UNKNOWN
        return footnotes.marked(_WORD_OF[row.eligible], "" if line.remark else row.reason)

    def style(line: TargetRow) -> str:
        row = line.of(use.use)
        return _STYLE_OF[row.eligible] if row is not None else ""

    return Column(use.use, text, unit=span(use.limit_us), style=style, priority=priority)
