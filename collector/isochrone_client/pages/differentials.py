"""Differentials: each region compared with the baseline per target, with intervals and decisions."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    age,
    amount,
    amount_interval,
    amount_percent,
    between,
    display_unit,
    displayed,
    milliseconds,
    moment,
    number,
)
from isochrone_client.pages.cells import Footnotes, without_size, worth
from isochrone_client.pages.explanation import ADDENDS, has_step, part_of, step_sentence
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page, wire_fields
from isochrone_wire.answers import Decision, Differential, DifferentialList, Metric, Side, Window
from isochrone_wire.durations import MINUTE_US
from isochrone_wire.json_format import minute
from isochrone_wire.queries.differential_order import select_rows
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.text import ESTIMAND, SERVER_CAVEAT

FORMAT = FORMATS["DifferentialList"]
_STYLE_OF = {
    Decision.FASTER: "green",
    Decision.SLOWER: "red",
    Decision.MIXED: "yellow",
    Decision.UNDECIDED: "dim",
}
_QUANTITIES = (
    "baseline_median",
    "region_median",
    "median_difference",
    "shift",
    "shift_low",
    "shift_high",
    "margin",
    "network_shift",
    "server_shift",
)
# Coverage below and failures above these shares are noted.
_GOOD_COVERAGE = 0.9
_FEW_FAILURES = 0.02
# About one round is always in progress.
_MISSING_ROUNDS = 1.5
# A row is stale if its newest round is older than this and than this part of the window.
_STALE_US = 15 * MINUTE_US
_STALE_SHARE = 20
_NOTHING: Mapping[str, Callable[[Differential], object]] = MappingProxyType({})
SUFFIX_OF = {"us": "us", "tokens/s": "tokens_per_second"}


def page(
    answer: DifferentialList,
    rows: tuple[Differential, ...],
    *,
    metric: Metric,
    now_at: int,
    also: Mapping[str, Callable[[Differential], object]] = _NOTHING,
) -> Page[Differential]:
    """The page of the `rows` of an answer about `metric`, with ages as of `now_at`.

    `also` adds fields to the records for programs.
    """
    stale_at = stale_before(answer.window, now_at=now_at)
    footnotes = Footnotes(remark(row, stale_at=stale_at, now_at=now_at) for row in rows)
    units = dict.fromkeys(_QUANTITIES, SUFFIX_OF[metric.unit])
    return Page(
        schema=FORMAT.schema,
        title=f"{metric}, rounds between {between(answer.window)}",
        facts=FORMAT.facts(answer),
        fields=wire_fields(Differential, also=tuple(also), units=units),
        record=lambda row: FORMAT.record(row) | {name: of(row) for name, of in also.items()},
        columns=_columns(
            rows,
            metric,
            lambda row: footnotes.marked(_decision(row, now_at=now_at), remark(row, stale_at=stale_at, now_at=now_at)),
        ),
        rows=rows,
        group=lambda row: f"{row.region} against {row.baseline}",
        notes=(
            *footnotes.notes,
            *(one.sentence for one in answer.missing),
            *([f"server: {SERVER_CAVEAT}"] if any(row.server_shift is not None for row in rows) else ()),
            *([ESTIMAND] if any(row.shift_low is not None for row in rows) else ()),
            *_freshness(rows, now_at=now_at),
        ),
    )


def _columns(
    rows: tuple[Differential, ...], metric: Metric, decision: Callable[[Differential], str]
) -> tuple[Column[Differential], ...]:
    unit = display_unit(metric.unit)

    def of(value: float | None) -> float | None:
        return displayed(value, metric.unit)

    def difference(heading: str, part: Callable[[Differential], float | None], priority: int) -> Column[Differential]:
        return Column(
            heading=heading,
            unit=unit,
            text=lambda row: _if_certain(row, amount(of(part(row)), signed=True)),
            scale="difference",
            priority=priority,
        )

    split = (
        difference("network", lambda row: row.network_shift, 5),
        difference("server", lambda row: row.server_shift, 4),
    )
    return (
        target_column(rows, lambda row: row.target),
        Column(
            heading="baseline →\nregion",
            unit=unit,
            text=lambda row: Amount((of(row.baseline_median), of(row.region_median)), "{} → {}"),
            priority=2,
        ),
        difference("difference", lambda row: row.shift, 0),
        Column(
            heading="interval",
            unit=f"95 %, {unit}",
            text=lambda row: amount_interval(of(row.shift_low), of(row.shift_high), signed=True),
            scale="difference",
            priority=1,
        ),
        Column(
            heading="relative",
            unit="%",
            text=lambda row: _if_certain(row, amount_percent(row.shift_percent)),
            priority=3,
        ),
        *(split if metric.includes_request else ()),
        Column(heading="rounds ≈\nindependent", text=_rounds, priority=6),
        Column(heading="correlation", text=lambda row: number(row.correlation, decimals=2), priority=7),
        Column(heading="decision", text=decision, style=lambda row: _STYLE_OF.get(row.decision, ""), wide=True),
    )


def _decision(row: Differential, *, now_at: int) -> str:
    """The decision, with the time since which it holds if the difference changed within the window."""
    return f"{row.decision} since {moment(row.levels[-1].from_at, now_at=now_at)}" if has_step(row) else row.decision


def _if_certain(row: Differential, number: Amount) -> str | Amount:
    """A number without an interval is not shown."""
    return UNKNOWN if row.shift_low is None or row.shift_high is None else number


def _rounds(row: Differential) -> str:
    """The number of rounds, and how many independent ones they are worth."""
    return worth(row.n, row.n_eff)


def stale_before(window: Window, *, now_at: int) -> int:
    """The instant before which the newest round of a row in this window is old."""
    until_at = min(now_at, window.until_at)
    return until_at - max(_STALE_US, (until_at - window.from_at) // _STALE_SHARE)


def remark(row: Differential, *, stale_at: int, now_at: int) -> str:
    """The footnote of a row with problems, otherwise empty. Instants are in microseconds since the epoch."""
    return "; ".join(_remarks(row, stale_at=stale_at, now_at=now_at))


def _remarks(row: Differential, *, stale_at: int, now_at: int) -> Iterator[str]:
    if row.decision in (Decision.UNDECIDED, Decision.MIXED) and row.reason:
        yield without_size(row.reason)
    if not row.paired:
        yield f"no rounds in common: {row.region_n} of {row.region} and {row.baseline_n} of {row.baseline}, unpaired"
    if has_step(row):
        yield step_sentence(row, now_at=now_at)
    elif row.since_at is not None:
        yield f"only rounds since the change at {minute(row.since_at)}"
    yield from _problems(row.baseline, row.baseline_side)
    yield from _problems(row.region, row.region_side)
    if row.newest_at is not None and row.newest_at < stale_at:
        yield f"no round for {age(row.newest_at, now_at=now_at)}"


def _problems(region: str, side: Side) -> Iterator[str]:
    """The problems of one side: missing rounds and failed probes."""
    if side.coverage is not None and side.coverage < _GOOD_COVERAGE and not _is_in_progress(side, side.coverage):
        yield f"{region} has {number(100 * side.coverage, decimals=0)} % of its rounds"
    if side.failures is not None and side.failures.value > _FEW_FAILURES:
        yield f"{number(100 * side.failures.value)} % of {side.failures.n} probes failed from {region}"


def _is_in_progress(side: Side, coverage: float) -> bool:
    """True if only rounds in progress are missing."""
    return 0 < side.n * (1 - coverage) < _MISSING_ROUNDS * coverage


def _freshness(rows: tuple[Differential, ...], *, now_at: int) -> tuple[str, ...]:
    newest_at = max((row.newest_at for row in rows if row.newest_at is not None), default=None)
    return () if newest_at is None else (f"newest round {age(newest_at, now_at=now_at)} ago",)


def require_decision(
    answer: DifferentialList, rows: tuple[Differential, ...], *, baseline: str, only: str | None
) -> None:
    """Raises `InsufficientError` if the answer has no decision or `only` leaves no row."""
    if not answer.differentials:
        has_baseline = baseline not in {one.region for one in answer.missing}
        wanted = f" from any region but {baseline}" if has_baseline else ""
        raise NoSamplesError(
            f"no samples{wanted} between {between(answer.window)}",
            window=answer.window,
            besides=baseline if has_baseline else "",
            missing=answer.missing,
        )
    if not rows:
        raise InsufficientError(
            f"none of {len(answer.differentials)} differentials is {only}",
            hint="omit --only to see all of them",
        )
    if all(row.decision is Decision.UNDECIDED for row in answer.differentials):
        nothing = f"nothing is decided: {_all_of(len(rows), 'differential')} undecided"
        if answer.missing:
            raise NoSamplesError(nothing, window=answer.window, missing=answer.missing)
        raise InsufficientError(
            nothing,
            hint="more rounds narrow the intervals: wait or use a longer --window; see `isochrone coverage`",
        )


def _all_of(count: int, noun: str) -> str:
    return f"the only {noun} is" if count == 1 else f"all {count} {noun}s are"


SCHEMA = "isochrone.origins/1"
_SCALE = "difference"
_NOTES = (
    "all: the sum of the phases, close to the difference of ttft_cold (of ttft if connections are kept open)",
    f"server: {SERVER_CAVEAT}",
    "provider: the part of the server's that the provider reports as its own processing time; edge: the rest of it",
)


def phases_page(answer: DifferentialList) -> Page[Differential]:
    """The page of all differentials with known phases, one table per region."""
    rows = tuple(row for row in select_rows(answer) if row.parts)
    return Page(
        schema=SCHEMA,
        title=f"contribution of the phases, rounds between {between(answer.window)}",
        fields=(),
        columns=(
            target_column(rows, lambda row: row.target),
            *(_shift(name) for name in ADDENDS),
            Column(heading="all", unit="ms", text=_whole, scale=_SCALE),
            _shift("edge"),
            _shift("provider"),
            Column(heading="rounds", text=lambda row: str(max(part.n for part in row.parts)), priority=2),
        ),
        rows=rows,
        group=lambda row: f"{row.region} against {row.baseline}",
        notes=_NOTES,
    )


def _shift(name: str) -> Column[Differential]:
    return Column(heading=name, unit="ms", text=_of(name), scale=_SCALE, priority=1)


def _of(name: str) -> Callable[[Differential], str | Amount]:
    def text(row: Differential) -> str | Amount:
        part = part_of(row, name)
        return UNKNOWN if part is None else amount(milliseconds(part.shift), signed=True)

    return text


def _whole(row: Differential) -> Amount:
    return amount(milliseconds(sum(part.shift for part in row.parts if part.name in ADDENDS)), signed=True)
