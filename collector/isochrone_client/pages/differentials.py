"""Regions against the baseline: which is faster for which target, by how much, and how sure that is."""

import math
from collections.abc import Callable

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, age, between, interval, milliseconds, number, percent
from isochrone_client.pages.footnotes import Footnotes
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.answers import Decision, Differential, DifferentialList, Metric
from isochrone_wire.plain import to_plain

SCHEMA = "isochrone.diff/1"
DECIDED = "decided"
_STYLE_OF = {Decision.FASTER: "green", Decision.SLOWER: "red", Decision.UNDECIDED: "dim"}
_QUANTITIES = ("baseline_median", "region_median", "shift", "shift_low", "shift_high")
_SUFFIX_OF = {"us": "us", "tokens/s": "tokens_per_second"}


def _by_target(row: Differential) -> tuple[str, float]:
    return (row.target, 0)


def _by_shift(row: Differential) -> tuple[float, str]:
    return (_best_first(row.shift, row.metric), row.target)


def _by_percent(row: Differential) -> tuple[float, str]:
    return (_best_first(row.shift_percent, row.metric), row.target)


def _best_first(value: float | None, metric: Metric) -> float:
    if value is None:
        return math.inf
    return -value if metric.more_is_better else value


_SORT_KEY: dict[str, Callable[[Differential], tuple[object, ...]]] = {
    "shift": _by_shift,
    "target": _by_target,
    "percent": _by_percent,
}
SORTS = tuple(_SORT_KEY)


def arranged(answer: DifferentialList, *, sort: str, only: str | None) -> tuple[Differential, ...]:
    """The differentials to show, region by region in the order of the answer, each sorted by one of `SORTS`.

    `shift` and `percent` put first where the region does best. `only` keeps one decision, or with
    `DECIDED` all but the undecided.
    """
    regions = list(dict.fromkeys(row.region for row in answer.differentials))
    kept = [row for row in answer.differentials if only is None or _kept(row.decision, only)]
    by_sort = sorted(kept, key=_SORT_KEY[sort])
    return tuple(sorted(by_sort, key=lambda row: regions.index(row.region)))


def _kept(decision: Decision, only: str) -> bool:
    return decision is not Decision.UNDECIDED if only == DECIDED else decision == only


def page(
    answer: DifferentialList, rows: tuple[Differential, ...], *, metric: Metric, now_at: int
) -> Page[Differential]:
    """The page of the `rows` of an answer about `metric`, with ages as of `now_at`."""
    footnotes = Footnotes(row.reason for row in rows if row.decision is Decision.UNDECIDED)
    units = dict.fromkeys(_QUANTITIES, _SUFFIX_OF[metric.unit])
    return Page(
        schema=SCHEMA,
        title=f"{metric}, rounds between {between(answer.window)}",
        facts={"window": to_plain(answer.window)},
        fields=wire_fields(Differential, units=units),
        columns=_columns(metric, footnotes, now_at=now_at),
        rows=rows,
        group=lambda row: f"{row.region} against {row.baseline}",
        notes=footnotes.notes,
    )


def _columns(metric: Metric, footnotes: Footnotes, *, now_at: int) -> tuple[Column[Differential], ...]:
    unit = "ms" if metric.unit == "us" else metric.unit
    of = milliseconds if metric.unit == "us" else _same
    return (
        Column(heading="target", text=lambda row: row.target, wide=True),
        Column(heading="baseline", unit=unit, text=lambda row: number(of(row.baseline_median))),
        Column(heading="region", unit=unit, text=lambda row: number(of(row.region_median))),
        Column(heading="shift", unit=unit, text=lambda row: _certain(row, number(of(row.shift), signed=True))),
        Column(
            heading="interval",
            unit=f"95 %, {unit}",
            text=lambda row: interval(of(row.shift_low), of(row.shift_high), signed=True),
        ),
        Column(heading="shift", unit="%", text=lambda row: _certain(row, percent(row.shift_percent))),
        Column(heading="rounds", text=lambda row: str(row.n)),
        Column(
            heading="decision",
            text=lambda row: footnotes.marked(row.decision, _reason(row)),
            style=lambda row: _STYLE_OF.get(row.decision, ""),
            wide=True,
        ),
        Column(heading="newest", unit="ago", text=lambda row: age(row.newest_at, now_at=now_at)),
    )


def _same(value: float | None) -> float | None:
    return value


def _certain(row: Differential, text: str) -> str:
    """A number without an interval is not said."""
    return UNKNOWN if row.shift_low is None or row.shift_high is None else text


def _reason(row: Differential) -> str:
    return row.reason if row.decision is Decision.UNDECIDED else ""


def require_decision(
    answer: DifferentialList, rows: tuple[Differential, ...], *, baseline: str, only: str | None
) -> None:
    """Raises `InsufficientError` when the answer decides nothing, or nothing is left of it, saying what would help."""
    if not answer.differentials:
        raise InsufficientError(
            f"no samples from any region but {baseline} between {between(answer.window)}",
            hint="is an agent running there? see `isochrone coverage`; a longer --window may reach older samples",
        )
    if not rows:
        raise InsufficientError(
            f"none of {len(answer.differentials)} differentials is {only}",
            hint="see all of them without --only",
        )
    if all(row.decision is Decision.UNDECIDED for row in answer.differentials):
        raise InsufficientError(
            f"nothing is decided: {_all_of(len(rows), 'differential')} undecided",
            hint="more rounds narrow the intervals: wait, or use a longer --window; see `isochrone coverage`",
        )


def _all_of(count: int, noun: str) -> str:
    return f"the only {noun} is" if count == 1 else f"all {count} {noun}s are"
