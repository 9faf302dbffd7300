"""Route tables: the members of each route and region, the changes of tables, and the decision behind one."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from isochrone_client.errors import ClientError, InsufficientError
from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    age,
    amount,
    amount_dollars,
    amount_interval,
    between,
    interval,
    milliseconds,
    moment,
    number,
)
from isochrone_client.pages.cells import TOO_FEW, Footnotes, value_of, worth
from isochrone_client.pages.targets import PROVIDERS, target_column, without_providers
from isochrone_client.render.page import Column, Page, row_record, wire_fields
from isochrone_wire.answers import Proportion, Quantile, Window
from isochrone_wire.insights import Eligible
from isochrone_wire.json_format import minute, to_json_value
from isochrone_wire.model import Slo
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.routes import SCHEMA as TABLE_SCHEMA
from isochrone_wire.routes import (
    ChangeKind,
    Explanation,
    Hedge,
    RaceSet,
    RouteEntry,
    RouteEvent,
    RouteEventList,
    RouteState,
    RouteTable,
    is_usable,
)
from isochrone_wire.text import ESTIMAND

SCHEMA = "isochrone.route-entries/1"
_HUNDRED = 100.0
_SCALE = "latency"
_SETTLED = 0.005
_MOVING = "↑ ↓: after a switch, the weight rises or falls by a quarter per epoch"
_CERTAINTY = (Eligible.YES, Eligible.MAYBE, Eligible.UNKNOWN, Eligible.NO)
# The fields of the table in a row of CSV; the fields of the entry follow.
_OF_TABLE = (
    "generation",
    "client_region",
    "route",
    "state",
    "built_at",
    "fresh_until_at",
    "stale_until_at",
    "on_expired",
)
_STATE = {
    RouteState.OK: "ok",
    RouteState.DEGRADED: "degraded: none meets the objective",
    RouteState.INSUFFICIENT_DATA: "insufficient data: use the static order",
    RouteState.FROZEN: "frozen: too many vantages fail at once for this to be the providers' fault",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    """One entry of a table; `entry` is `None` for a table without entries."""

    table: RouteTable
    entry: RouteEntry | None


def page(tables: tuple[RouteTable, ...], *, now_at: int) -> Page[EntryRow]:
    """The tables for people and for CSV, one entry per row, with ages as of `now_at`."""
    rows = tuple(EntryRow(table=table, entry=entry) for table in in_order(tables) for entry in table.entries or (None,))
    footnotes = Footnotes(_objective_remark(row) for row in rows)
    return Page(
        schema=SCHEMA,
        title="where to send requests now",
        fields=(*(field for field in wire_fields(RouteTable) if field.header in _OF_TABLE), *wire_fields(RouteEntry)),
        columns=_columns(rows, now_at, footnotes),
        rows=rows,
        group=lambda row: _heading(row.table, now_at=now_at),
        notes=(
            *footnotes.notes,
            *_certainty_notes(rows),
            *((_MOVING,) if any(_direction(row) for row in rows) else ()),
            *(note for table in in_order(tables) for note in _remarks(table, now_at=now_at)),
        ),
        record=_record,
    )


def in_order(tables: tuple[RouteTable, ...]) -> tuple[RouteTable, ...]:
    """The tables by region, then by route."""
    return tuple(sorted(tables, key=lambda table: (table.client_region, table.route)))


def require_usable(tables: tuple[RouteTable, ...], *, now_at: int) -> None:
    """Raises `InsufficientError` if no table may be used for routing."""
    if any(is_usable(table, now_at=now_at) for table in tables):
        return
    if not tables:
        raise InsufficientError(
            "there is no route table yet",
            hint="does the plan have `routes`, and are agents running? a table needs 6 samples of a member; see "
            "`isochrone-collector plan show` and `isochrone coverage`",
        )
    raise InsufficientError(
        "no table is usable: all of them are expired or lack data; use the static order",
        hint="are agents running, and is the collector the leader? see `isochrone vantages` and "
        "`isochrone-collector doctor`",
    )


def objective_reason(entry: RouteEntry, slo: Slo) -> str:
    """The reason that a member does not meet the objective for certain, empty if it does: latency, success or both."""
    late = _goodput_reason(entry.goodput, slo) if entry.goodput else _latency_reason(entry.ttft_p95_us, slo)
    return "; ".join(filter(None, (late, _success_reason(entry.success, slo))))


def _goodput_reason(goodput: Proportion, slo: Slo) -> str:
    if goodput.low >= slo.min_goodput:
        return ""
    # Down, so that a bound just below what is needed does not look as if it were met.
    low = number(math.floor(_HUNDRED * 10 * goodput.low) / 10, decimals=1)
    value, high, needed = (
        number(_HUNDRED * share, decimals=1) for share in (goodput.value, goodput.high, slo.min_goodput)
    )
    more = ": more requests decide it" if goodput.high >= slo.min_goodput else ""
    return f"{value} % of {goodput.n} requests in time [{low} … {high}], {needed} % needed; {_limits(slo)}{more}"


def _limits(slo: Slo) -> str:
    limits = [
        "" if slo.ttft_p95_us is None else f"the limit is {_ms(slo.ttft_p95_us)} ms",
        "" if slo.answer_p95_us is None else f"{slo.answer_tokens} tokens in {_ms(slo.answer_p95_us)} ms",
        "" if slo.min_tokens_per_second is None else f"at {number(slo.min_tokens_per_second)} tokens/s or more",
    ]
    return ", ".join(filter(None, limits))


def _latency_reason(p95: Quantile | None, slo: Slo) -> str:
    if slo.ttft_p95_us is None:
        return ""
    limit = f"the limit is {_ms(slo.ttft_p95_us)} ms"
    if p95 is None or p95.low is None or p95.high is None:
        return f"p95 unknown, fewer than 59 samples; {limit}"
    if p95.high <= slo.ttft_p95_us:
        return ""
    bounds = (
        f"at least {_ms(p95.low)}" if p95.low > slo.ttft_p95_us else interval(*map(milliseconds, (p95.low, p95.high)))
    )
    return f"p95 {bounds} ms, {limit}"


def _success_reason(success: Proportion | None, slo: Slo) -> str:
    minimum = f"min_success is {number(_HUNDRED * slo.min_success, decimals=1)} %"
    if not slo.min_success:
        return ""
    if success is None:
        return f"success unknown, no request; {minimum}"
    if success.low >= slo.min_success:
        return ""
    if success.high < slo.min_success:
        return f"success at most {number(_HUNDRED * success.high, decimals=1)} %, {minimum}"
    low = number(_HUNDRED * success.low, decimals=1)
    return f"success at least {low} % after {success.n} requests, {minimum}: more requests decide it"


def _objective_remark(row: EntryRow) -> str:
    return objective_reason(row.entry, row.table.slo) if row.entry else ""


def _heading(table: RouteTable, *, now_at: int) -> str:
    fresh = freshness_text(table, now_at=now_at)
    return f"{table.route} from {table.client_region}: {_STATE[table.state]}; generation {table.generation}, {fresh}"


def _record(row: EntryRow) -> dict[str, Any]:
    table = row_record(row.table)
    empty = dict.fromkeys(field.path[0] for field in wire_fields(RouteEntry))
    return {name: table[name] for name in _OF_TABLE} | (row_record(row.entry) if row.entry else empty)


def _certainty_notes(rows: tuple[EntryRow, ...]) -> Iterator[str]:
    if any(row.entry for row in rows):
        yield ESTIMAND
    if any(row.entry and value_of(row.entry.ttft_p95_us) is None for row in rows):
        yield TOO_FEW


def _direction(row: EntryRow) -> str:
    """The arrow of a weight that moves to that of its rank: all of it, shared by the members with the first rank."""
    if row.entry is None or any(entry.max_weight < 1 for entry in row.table.entries):
        return ""
    sharing = sum(entry.rank == 1 for entry in row.table.entries)
    change = (1 / sharing if row.entry.rank == 1 else 0.0) - row.entry.weight
    return "" if abs(change) < _SETTLED else ("↑ " if change > 0 else "↓ ")


def _weight(row: EntryRow) -> str:
    return _direction(row) + number(_HUNDRED * row.entry.weight, decimals=0) if row.entry else UNKNOWN


def _order(table: RouteTable, *, now_at: int) -> Iterator[str]:
    """Why the first member ranks before one whose median is lower, if there is one."""
    known = [(median, entry) for entry in table.entries if (median := value_of(entry.ttft_p50_us)) is not None]
    if not known or known[0][1] is not table.entries[0]:
        return
    first, fastest = table.entries[0], min(known, key=lambda pair: pair[0])[1]
    if fastest.rank > first.rank:
        yield f"{first.target} ranks before {fastest.target}, whose median is lower: {_reason(first, fastest, now_at)}"


def _reason(first: RouteEntry, fastest: RouteEntry, now_at: int) -> str:
    if _CERTAINTY.index(first.slo_eligible) < _CERTAINTY.index(fastest.slo_eligible):
        return "it is more certain to meet the objective"
    if first.cost is not None and fastest.cost is not None and first.cost < fastest.cost:
        return (
            f"with p95, price and failures it counts as {number(first.cost)} ms, the other as {number(fastest.cost)} ms"
        )
    since = f" {age(first.hold.since_at, now_at=now_at)} ago" if first.hold is not None else ""
    return (
        f"it became the first choice{since}, by newer rounds than most of the median's, and no rule switches back yet"
    )


def _remarks(table: RouteTable, *, now_at: int) -> Iterator[str]:
    """The notes of a table: its last change, order, hedge, race and excluded members."""
    where = f"{table.route} from {table.client_region}"
    if table.sentence and table.change is not ChangeKind.EVIDENCE:
        yield f"{where}: {table.sentence}"
    yield from (f"{where}: {reason}" for reason in _order(table, now_at=now_at))
    first = table.entries[0].hedge if table.entries else None
    if first is not None:
        yield f"{where}, hedge: {_hedge(first)}"
    if table.race is not None:
        yield f"{where}, race: {_race(table.race)}"
    for entry in table.entries:
        if entry.throttled:
            share = number(_HUNDRED * entry.throttled)
            yield f"{where}: {share} % of the recent requests to {entry.target} were throttled"
    if table.unassigned:
        share = number(_HUNDRED * table.unassigned)
        yield f"{where}: {share} % of the traffic is beyond max_share of the members: wait with it or refuse it"
    for one in table.excluded:
        yield f"{where} excludes {one.target}: {one.reason}"
    if not table.entries:
        yield f"{where}, static order: {', '.join(table.static_order) or 'none'}"


def _hedge(hedge: Hedge) -> str:
    if hedge.delay_us is None:
        return f"not with {hedge.target}: {hedge.reason}" if hedge.target else hedge.reason
    gain = ""
    if hedge.expected_p99_without_us is not None and hedge.expected_p99_with_us is not None:
        without, with_it = (_ms(us) for us in (hedge.expected_p99_without_us, hedge.expected_p99_with_us))
        gain = f"; expected p99 {with_it} instead of {without} ms"
    return f"{hedge.target} after {_ms(hedge.delay_us)} ms without a token{gain}"


def _race(race: RaceSet) -> str:
    if len(race.targets) < 2:  # noqa: PLR2004  # a race needs two
        return race.reason or f"{', '.join(race.targets)} alone"
    costs = f", {number(race.usd_factor)} times the cost" if race.usd_factor is not None else ""
    p95 = f": expected p95 {_ms(race.expected_p95_us)} ms" if race.expected_p95_us is not None else ""
    return f"{' + '.join(race.targets)} at once{p95}{costs}"


def _ms(us: float | None) -> str:
    return number(milliseconds(us))


def _of_entry(of: Callable[[RouteEntry], str | Amount]) -> Callable[[EntryRow], str | Amount]:
    return lambda row: of(row.entry) if row.entry else UNKNOWN


def _quantile(of: Callable[[RouteEntry], Quantile | None]) -> Callable[[EntryRow], str | Amount]:
    return _of_entry(lambda entry: amount(milliseconds(value_of(of(entry)))))


def _around(entry: RouteEntry) -> str | Amount:
    median = entry.ttft_p50_us
    return amount_interval(milliseconds(median.low), milliseconds(median.high)) if median else UNKNOWN


def _bound(entry: RouteEntry) -> Amount:
    return amount(milliseconds(entry.ttft_p95_us.high if entry.ttft_p95_us else None))


def _in_time(entry: RouteEntry) -> str:
    return number(_HUNDRED * entry.goodput.value, decimals=1) if entry.goodput else UNKNOWN


def _success(entry: RouteEntry) -> str:
    return number(_HUNDRED * entry.success.value, decimals=1) if entry.success else UNKNOWN


def _colour(row: EntryRow) -> str:
    return {Eligible.YES: "green", Eligible.NO: "red"}.get(row.entry.slo_eligible, "") if row.entry else ""


def _verdict(footnotes: Footnotes) -> Callable[[EntryRow], str]:
    def text(row: EntryRow) -> str:
        return footnotes.marked(row.entry.slo_eligible.value, _objective_remark(row)) if row.entry else UNKNOWN

    return text


def _columns(rows: tuple[EntryRow, ...], now_at: int, footnotes: Footnotes) -> tuple[Column[EntryRow], ...]:
    return (
        Column(heading="rank", text=_of_entry(lambda entry: str(entry.rank))),
        Column(heading="weight", unit="%", text=_weight),
        target_column(rows, lambda row: row.entry.target if row.entry else UNKNOWN),
        Column(heading="p50", unit="ms", text=_quantile(lambda entry: entry.ttft_p50_us), scale=_SCALE),
        Column(heading="interval", unit="95 %, ms", text=_of_entry(_around), scale=_SCALE, priority=2),
        Column(heading="p95", unit="ms", text=_quantile(lambda entry: entry.ttft_p95_us), scale=_SCALE, priority=3),
        Column(heading="at most", unit="ms", text=_of_entry(_bound), scale=_SCALE, priority=4),
        Column(heading="in time", unit="%", text=_of_entry(_in_time), priority=1),
        Column(heading="slo", text=_verdict(footnotes), style=_colour),
        Column(heading="success", unit="%", text=_of_entry(_success), priority=5),
        Column(heading="n ≈\nindependent", text=_of_entry(lambda entry: worth(entry.n, entry.n_eff)), priority=8),
        Column(
            heading="output",
            unit="$/M",
            text=_of_entry(lambda entry: amount_dollars(entry.usd_per_m_output)),
            priority=6,
        ),
        Column(heading="age", text=_of_entry(lambda entry: age(entry.newest_at, now_at=now_at)), priority=7),
    )


class Freshness(StrEnum):
    """`FRESH`: use the table. `AGING`: use it, but it no longer switches. `EXPIRED`: do what `on_expired` states."""

    FRESH = "fresh"
    AGING = "aging"
    EXPIRED = "expired"


def freshness(table: RouteTable, *, now_at: int) -> Freshness:
    """The freshness of the table at `now_at` (microseconds since the epoch)."""
    if now_at >= table.stale_until_at:
        return Freshness.EXPIRED
    return Freshness.FRESH if now_at < table.fresh_until_at else Freshness.AGING


def freshness_text(table: RouteTable, *, now_at: int) -> str:
    """`fresh for 38 s`, `aging, usable for 2 min` or `expired 5 min ago: use the static order`."""
    state = freshness(table, now_at=now_at)
    if state is Freshness.FRESH:
        return f"fresh for {age(now_at, now_at=table.fresh_until_at)}"
    if state is Freshness.AGING:
        return f"aging, usable for {age(now_at, now_at=table.stale_until_at)}"
    return f"expired {age(table.stale_until_at, now_at=now_at)} ago: use the static order"


_COLOUR = {ChangeKind.HARD: "red", ChangeKind.FREEZE: "red", ChangeKind.FAST: "yellow", ChangeKind.SOFT: "yellow"}


def changes_page(tables: tuple[RouteTable, ...], *, now_at: int) -> Page[RouteTable]:
    """One line per table for people, by generation; all fields of each table for programs. Instants on the day of
    `now_at` are shown without the date.
    """
    return Page(
        schema=TABLE_SCHEMA,
        title="route tables",
        fields=wire_fields(RouteTable),
        columns=(
            Column(heading="built", unit="UTC", text=lambda row: moment(row.built_at, now_at=now_at), reserved=11),
            Column(heading="generation", text=lambda row: str(row.generation), priority=2, reserved=10),
            Column(heading="region", text=lambda row: row.client_region, wide=True, reserved=14),
            Column(heading="route", text=lambda row: row.route, wide=True, reserved=8),
            Column(
                heading="weights",
                text=_weights,
                wide=True,
                prose=True,
                priority=1,
                reserved=20,
                short=lambda row: without_providers(_weights(row)),
                short_of=PROVIDERS,
            ),
            Column(
                heading="what changed",
                text=lambda row: row.sentence,
                style=lambda row: _COLOUR.get(row.change, ""),
                wide=True,
                prose=True,
                reserved=20,
                short=lambda row: without_providers(row.sentence),
                short_of=PROVIDERS,
            ),
        ),
        rows=tuple(sorted(tables, key=lambda table: table.generation)),
    )


def events_page(answer: RouteEventList, *, now_at: int) -> Page[RouteEvent]:
    """The page of the events of a window, newest first."""
    return Page(
        schema=FORMATS["RouteEventList"].schema,
        title=f"changes of route tables between {between(answer.window)}",
        facts={"window": to_json_value(answer.window)},
        fields=wire_fields(RouteEvent),
        columns=(
            Column(heading="at", unit="UTC", text=lambda row: moment(row.at, now_at=now_at)),
            Column(heading="generation", text=lambda row: str(row.generation), priority=2),
            Column(heading="region", text=lambda row: row.client_region, wide=True),
            Column(heading="route", text=lambda row: row.route, wide=True),
            Column(
                heading="change",
                text=lambda row: row.change.value,
                style=lambda row: _COLOUR.get(row.change, ""),
                wide=True,
                priority=1,
            ),
            Column(
                heading="what changed",
                text=lambda row: row.sentence,
                wide=True,
                prose=True,
                short=lambda row: without_providers(row.sentence),
                short_of=PROVIDERS,
            ),
        ),
        rows=tuple(sorted(answer.events, key=lambda row: -row.generation)),
    )


def empty_message(window: Window) -> str:
    """The message for a window without events."""
    return f"no table changed between {between(window)}"


def _weights(table: RouteTable) -> str:
    """The members with a weight: `deepseek/v4 75 %, qwen/qwen3 25 %`."""
    weighted = [entry for entry in table.entries if entry.weight > 0]
    return ", ".join(f"{one.target} {number(_HUNDRED * one.weight, decimals=0)} %" for one in weighted) or UNKNOWN


EXPLANATION_SCHEMA = "isochrone.route-explanation/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStep:
    """One step of a decision; numbers start at 1."""

    number: int
    sentence: str


def explanation_page(answer: Explanation, *, now_at: int) -> Page[DecisionStep]:
    """The explanation for people, one sentence per row."""
    table = answer.table
    return Page(
        schema=EXPLANATION_SCHEMA,
        title=f"{table.route} from {table.client_region}, generation {table.generation}: "
        f"built {minute(table.built_at)} UTC, {freshness_text(table, now_at=now_at)}",
        fields=wire_fields(DecisionStep),
        columns=(
            Column(heading="step", text=lambda step: str(step.number)),
            Column(heading="why", text=lambda step: step.sentence, wide=True, prose=True),
        ),
        rows=tuple(
            DecisionStep(number=number, sentence=sentence) for number, sentence in enumerate(answer.steps, start=1)
        ),
        notes=(_replay(answer), f"inputs sha256:{table.provenance.inputs_sha256}"),
    )


def document(answer: Explanation, *, with_inputs: bool = True) -> Page[RouteTable]:
    """The explanation for programs: the table, its steps, and the inputs and previous state as stored, which may be
    long.
    """
    stored = {"inputs": _stored(answer.inputs), "before": _stored(answer.before)} if with_inputs else {}
    return Page(
        schema=EXPLANATION_SCHEMA,
        title="",
        facts={
            "steps": list(answer.steps),
            "replays": answer.replays,
            "table": to_json_value(answer.table),
            **stored,
        },
        fields=(),
        columns=(),
        rows=(),
    )


def require_replay(answer: Explanation) -> None:
    """Raises `ClientError` if repeating the decision did not give the same table."""
    if not answer.replays:
        raise ClientError(
            f"repeating the decision from the stored inputs does not give generation {answer.table.generation}",
            hint=f"version {answer.table.provenance.code_version} built it; does the collector run another version?",
        )


def _replay(answer: Explanation) -> str:
    result = "gives the same table, byte for byte" if answer.replays else "does NOT give this table"
    return f"repeating the decision from the stored inputs {result}"


def _stored(text: str) -> Any:  # noqa: ANN401  # any stored JSON
    return json.loads(text) if text else None
