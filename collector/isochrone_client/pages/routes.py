"""Route tables: the members of each route and region, the changes of tables, and the decision behind one."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from isochrone_client import formats
from isochrone_client.errors import ClientError, InsufficientError
from isochrone_client.formats import amount_ms, number
from isochrone_client.pages import cells
from isochrone_client.render.page import Column, Field, Page, answer_page, row_record, wire_fields
from isochrone_wire import routes
from isochrone_wire.answers import Proportion, Quantile, Window
from isochrone_wire.insights import Eligible
from isochrone_wire.json_format import minute, to_json_value
from isochrone_wire.model import Slo
from isochrone_wire.routes import SCHEMA as TABLE_SCHEMA
from isochrone_wire.text import ESTIMAND

_SETTLED = 0.005
_CERTAINTY = (Eligible.YES, Eligible.MAYBE, Eligible.UNKNOWN, Eligible.NO)
# The fields of the table in a row of CSV; the fields of the entry follow.
_OF_TABLE = (
    *("generation", "client_region", "route", "state"),
    *("built_at", "fresh_until_at", "stale_until_at", "on_expired"),
)
_STATE = {
    routes.RouteState.OK: "ok",
    routes.RouteState.DEGRADED: "degraded: none meets the objective",
    routes.RouteState.INSUFFICIENT_DATA: "insufficient data: use the static order",
    routes.RouteState.FROZEN: "frozen: too many vantages fail at once for this to be the providers' fault",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    """One entry of a table; `entry` is `None` for a table without entries."""

    table: routes.RouteTable
    entry: routes.RouteEntry | None

    @property
    def remark(self) -> str:
        """The reason that the member does not meet the objective for certain."""
        return objective_reason(self.entry, self.table.slo) if self.entry else ""

    @property
    def direction(self) -> str:
        """The arrow of a weight that moves to that of its rank: all of it, shared by the members of the first."""
        if self.entry is None or any(entry.max_weight < 1 for entry in self.table.entries):
            return ""
        sharing = sum(entry.rank == 1 for entry in self.table.entries)
        change = (1 / sharing if self.entry.rank == 1 else 0.0) - self.entry.weight
        return "" if abs(change) < _SETTLED else ("↑ " if change > 0 else "↓ ")


def page(tables: tuple[routes.RouteTable, ...], *, now_at: int) -> Page[EntryRow]:
    """The tables for people and for CSV, one entry per row, with ages as of `now_at`."""
    ordered = sorted(tables, key=lambda table: (table.client_region, table.route))
    rows = tuple(EntryRow(table=table, entry=entry) for table in ordered for entry in table.entries or (None,))
    footnotes = cells.Footnotes(row.remark for row in rows)
    empty = dict.fromkeys(field.path[0] for field in wire_fields(routes.RouteEntry))

    def heading(row: EntryRow) -> str:
        one = row.table
        fresh = freshness_text(one, now_at=now_at)
        return f"{one.route} from {one.client_region}: {_STATE[one.state]}; generation {one.generation}, {fresh}"

    def record(row: EntryRow) -> dict[str, Any]:
        table = row_record(row.table)
        return {name: table[name] for name in _OF_TABLE} | (row_record(row.entry) if row.entry else empty)

    return Page(
        schema="isochrone.route-entries/1",
        title="where to send requests now",
        fields=(
            *(field for field in wire_fields(routes.RouteTable) if field.header in _OF_TABLE),
            *wire_fields(routes.RouteEntry, units={"cost": "ms"}),
        ),
        columns=_columns(rows, now_at, footnotes),
        rows=rows,
        group=heading,
        notes=(
            *footnotes.notes,
            *cells.notes_that_hold(
                (any(row.entry for row in rows), ESTIMAND),
                (
                    cells.are_early(
                        one for row in rows if row.entry for one in (row.entry.ttft_p50_us, row.entry.ttft_p95_us)
                    ),
                    cells.EARLY,
                ),
                (
                    any(row.direction for row in rows),
                    "↑ ↓: after a switch, the weight rises or falls by a quarter per epoch",
                ),
            ),
            *(note for table in ordered for note in _remarks(table, now_at=now_at)),
        ),
        record=record,
    )


def require_usable(tables: tuple[routes.RouteTable, ...], *, now_at: int) -> None:
    """Raises `InsufficientError` if no table may be used for routing."""
    if any(routes.is_usable(table, now_at=now_at) for table in tables):
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


def objective_reason(entry: routes.RouteEntry, slo: Slo) -> str:
    """The reason that a member does not meet the objective for certain, empty if it does: latency, success or both."""
    late = _goodput_reason(entry.goodput, slo) if entry.goodput else _latency_reason(entry.ttft_p95_us, slo)
    return "; ".join(filter(None, (late, _success_reason(entry.success, slo))))


def _goodput_reason(goodput: Proportion, slo: Slo) -> str:
    if goodput.low >= slo.min_goodput:
        return ""
    # Down, so that a bound just below what is needed does not look as if it were met.
    low = cells.percentage(math.floor(1000 * goodput.low) / 1000)
    value, high, needed = map(cells.percentage, (goodput.value, goodput.high, slo.min_goodput))
    more = ": more requests decide it" if goodput.high >= slo.min_goodput else ""
    limits = cells.notes_that_hold(
        (slo.ttft_p95_us is not None, f"the limit is {_ms(slo.ttft_p95_us)} ms"),
        (slo.answer_p95_us is not None, f"{slo.answer_tokens} tokens in {_ms(slo.answer_p95_us)} ms"),
        (slo.min_tokens_per_second is not None, f"at {number(slo.min_tokens_per_second)} tokens/s or more"),
    )
    return f"{value} % of {goodput.n} requests in time [{low} … {high}], {needed} % needed; {', '.join(limits)}{more}"


def _latency_reason(p95: Quantile | None, slo: Slo) -> str:
    if slo.ttft_p95_us is None:
        return ""
    limit = f"the limit is {_ms(slo.ttft_p95_us)} ms"
    if p95 is None or p95.low is None:
        return f"p95 unknown, {'no sample' if p95 is None else 'too few samples'}; {limit}"
    if p95.high is not None and p95.high <= slo.ttft_p95_us:
        return ""
    is_certain = p95.low > slo.ttft_p95_us or p95.high is None
    bounds = (
        f"at least {_ms(p95.low)}"
        if is_certain
        else formats.interval(formats.milliseconds(p95.low), formats.milliseconds(p95.high))
    )
    return f"p95 {bounds} ms, {limit}"


def _success_reason(success: Proportion | None, slo: Slo) -> str:
    minimum = f"min_success is {cells.percentage(slo.min_success)} %"
    if not slo.min_success:
        return ""
    if success is None:
        return f"success unknown, no request; {minimum}"
    if success.low >= slo.min_success:
        return ""
    if success.high < slo.min_success:
        return f"success at most {cells.percentage(success.high)} %, {minimum}"
    low = cells.percentage(success.low)
    return f"success at least {low} % after {success.n} requests, {minimum}: more requests decide it"


def _order(table: routes.RouteTable, *, now_at: int) -> Iterator[str]:
    """Why the first member ranks before one whose median is lower, if there is one."""
    firm = [(entry.ttft_p50_us, entry) for entry in table.entries if cells.has_interval(entry.ttft_p50_us)]
    known = [(median.value, entry) for median, entry in firm if median]
    if not known or known[0][1] is not table.entries[0]:
        return
    first, fastest = table.entries[0], min(known, key=lambda pair: pair[0])[1]
    if fastest.rank <= first.rank:
        return
    since = f" {formats.age(first.hold.since_at, now_at=now_at)} ago" if first.hold is not None else ""
    why = f"it became the first choice{since}, by newer rounds than most of the median's, and no rule switches back yet"
    if _CERTAINTY.index(first.slo_in_window) < _CERTAINTY.index(fastest.slo_in_window):
        why = "in this window it is more certain to meet the objective"
    elif first.cost is not None and fastest.cost is not None and first.cost < fastest.cost:
        own, other = number(first.cost), number(fastest.cost)
        why = f"with p95, price and failures it counts as {own} ms, the other as {other} ms"
    yield f"{first.target} ranks before {fastest.target}, whose median is lower: {why}"


def _remarks(table: routes.RouteTable, *, now_at: int) -> Iterator[str]:
    """The notes of a table: its last change, order, hedge, race and excluded members."""
    where = f"{table.route} from {table.client_region}"
    if table.sentence and table.change is not routes.ChangeKind.EVIDENCE:
        yield f"{where}: {table.sentence}"
    yield from (f"{where}: {reason}" for reason in _order(table, now_at=now_at))
    first = table.entries[0].hedge if table.entries else None
    if first is not None:
        yield f"{where}, hedge: {_hedge(first)}"
    if table.race is not None:
        yield f"{where}, race: {_race(table.race)}"
    for entry in table.entries:
        if entry.throttled:
            yield f"{where}: {number(100 * entry.throttled)} % of the recent requests to {entry.target} were throttled"
    if table.unassigned:
        share = number(100 * table.unassigned)
        yield f"{where}: {share} % of the traffic is beyond max_share of the members: wait with it or refuse it"
    for one in table.excluded:
        yield f"{where} excludes {one.target}: {one.reason}"
    if not table.entries:
        yield f"{where}, static order: {', '.join(table.static_order) or 'none'}"


def _hedge(hedge: routes.Hedge) -> str:
    if hedge.delay_us is None:
        return f"not with {hedge.target}: {hedge.reason}" if hedge.target else hedge.reason
    gain = ""
    if hedge.expected_p99_without_us is not None and hedge.expected_p99_with_us is not None:
        gain = f"; expected p99 {_ms(hedge.expected_p99_with_us)} instead of {_ms(hedge.expected_p99_without_us)} ms"
    return f"{hedge.target} after {_ms(hedge.delay_us)} ms without a token{gain}"


def _race(race: routes.RaceSet) -> str:
    if len(race.targets) < 2:  # noqa: PLR2004  # a race needs two
        return race.reason or f"{', '.join(race.targets)} alone"
    costs = f", {number(race.usd_factor)} times the cost" if race.usd_factor is not None else ""
    p95 = f": expected p95 {_ms(race.expected_p95_us)} ms" if race.expected_p95_us is not None else ""
    return f"{' + '.join(race.targets)} at once{p95}{costs}"


def _ms(us: float | None) -> str:
    return number(formats.milliseconds(us))


def _columns(rows: tuple[EntryRow, ...], now_at: int, footnotes: cells.Footnotes) -> tuple[Column[EntryRow], ...]:
    def of(text: Callable[[routes.RouteEntry], str | formats.Amount]) -> Callable[[EntryRow], str | formats.Amount]:
        return lambda row: text(row.entry) if row.entry else formats.UNKNOWN

    def p50(row: EntryRow) -> Quantile | None:
        return row.entry.ttft_p50_us if row.entry else None

    def p95(row: EntryRow) -> Quantile | None:
        return row.entry.ttft_p95_us if row.entry else None

    def share(part: Proportion | None) -> str:
        return cells.percentage(part.value) if part else formats.UNKNOWN

    def verdict(row: EntryRow) -> str:
        return footnotes.marked(row.entry.slo_eligible.value, row.remark) if row.entry else formats.UNKNOWN

    def style(row: EntryRow) -> str:
        return {Eligible.YES: "green", Eligible.NO: "red"}.get(row.entry.slo_eligible, "") if row.entry else ""

    return (
        Column("rank", of(lambda entry: str(entry.rank))),
        Column(
            "weight",
            lambda row: row.direction + number(100 * row.entry.weight, decimals=0) if row.entry else formats.UNKNOWN,
            unit="%",
        ),
        cells.target_column(rows, lambda row: row.entry.target if row.entry else formats.UNKNOWN),
        cells.quantile_column("p50", p50),
        cells.interval_column(p50, priority=3),
        cells.quantile_column("p95", p95, share=0.95, n=lambda row: row.entry.n if row.entry else 0, priority=1),
        Column(
            "at most",
            lambda row: amount_ms(found.high if (found := p95(row)) else None),
            unit="ms",
            scale="ms",
            priority=4,
        ),
        Column("in time", of(lambda entry: share(entry.goodput)), unit="%", priority=2),
        Column("slo", verdict, style=style),
        Column("success", of(lambda entry: share(entry.success)), unit="%", priority=5),
        Column("n ≈\nindependent", of(lambda entry: cells.worth(entry.n, entry.n_eff)), priority=8),
        Column("output", of(lambda entry: formats.amount_dollars(entry.usd_per_m_output)), unit="$/M", priority=6),
        Column("age", of(lambda entry: formats.age(entry.newest_at, now_at=now_at)), priority=7),
    )


def freshness_text(table: routes.RouteTable, *, now_at: int) -> str:
    """`fresh for 38 s`, `aging, usable for 2 min` or `expired 5 min ago: use the static order`."""
    if now_at >= table.stale_until_at:
        return f"expired {formats.age(table.stale_until_at, now_at=now_at)} ago: use the static order"
    if now_at >= table.fresh_until_at:
        return f"aging, usable for {formats.age(now_at, now_at=table.stale_until_at)}"
    return f"fresh for {formats.age(now_at, now_at=table.fresh_until_at)}"


_CHANGE_STYLES = {
    routes.ChangeKind.HARD: "red",
    routes.ChangeKind.FREEZE: "red",
    routes.ChangeKind.FAST: "yellow",
    routes.ChangeKind.SOFT: "yellow",
}


def _change_style(row: routes.RouteTable | routes.RouteEvent) -> str:
    return _CHANGE_STYLES.get(row.change, "")


def changes_page(tables: tuple[routes.RouteTable, ...], *, now_at: int) -> Page[routes.RouteTable]:
    """One line per table by generation for people, with today's instants without the date; all fields for programs."""

    def weights(row: routes.RouteTable) -> str:
        """The members with a weight: `deepseek/v4 75 %, qwen/qwen3 25 %`."""
        weighted = [entry for entry in row.entries if entry.weight > 0]
        return (
            ", ".join(f"{one.target} {number(100 * one.weight, decimals=0)} %" for one in weighted) or formats.UNKNOWN
        )

    return Page(
        schema=TABLE_SCHEMA,
        title="route tables",
        fields=wire_fields(routes.RouteTable),
        columns=(
            Column("built", lambda row: formats.moment(row.built_at, now_at=now_at), unit="UTC", reserved=11),
            Column("generation", lambda row: str(row.generation), priority=2, reserved=10),
            Column("region", lambda row: row.client_region, wide=True, reserved=14),
            Column("route", lambda row: row.route, wide=True, reserved=10),
            cells.sentence_column("weights", weights, priority=1, reserved=20),
            cells.sentence_column("what changed", lambda row: row.sentence, style=_change_style, reserved=20),
        ),
        rows=tuple(sorted(tables, key=lambda table: table.generation)),
    )


def events_page(answer: routes.RouteEventList, *, now_at: int) -> Page[routes.RouteEvent]:
    """The page of the events of a window, newest first."""
    return answer_page(
        answer,
        f"changes of route tables between {formats.between(answer.window)}",
        (
            Column("at", lambda row: formats.moment(row.at, now_at=now_at), unit="UTC"),
            Column("generation", lambda row: str(row.generation), priority=2),
            Column("region", lambda row: row.client_region, wide=True),
            Column("route", lambda row: row.route, wide=True),
            Column("change", lambda row: row.change.value, style=_change_style, wide=True, priority=1),
            cells.sentence_column("what changed", lambda row: row.sentence),
        ),
        rows=tuple(sorted(answer.events, key=lambda row: -row.generation)),
    )


def empty_message(window: Window) -> str:
    """The message for a window without events."""
    return f"no table changed between {formats.between(window)}"


EXPLANATION_SCHEMA = "isochrone.route-explanation/1"


def explanation_page(answer: routes.Explanation, *, now_at: int) -> Page[tuple[int, str]]:
    """The explanation for people, one sentence per row."""
    table = answer.table
    result = "gives the same table, byte for byte" if answer.replays else "does NOT give this table"
    return Page(
        schema=EXPLANATION_SCHEMA,
        title=f"{table.route} from {table.client_region}, generation {table.generation}: "
        f"built {minute(table.built_at)} UTC, {freshness_text(table, now_at=now_at)}",
        fields=tuple(Field(header=name, path=(name,)) for name in ("number", "sentence")),
        columns=(Column("step", lambda step: str(step[0])), Column("why", lambda step: step[1], prose=True)),
        rows=tuple(enumerate(answer.steps, start=1)),
        record=lambda step: {"number": step[0], "sentence": step[1]},
        notes=(
            f"repeating the decision from the stored inputs {result}",
            f"inputs sha256:{table.provenance.inputs_sha256}",
        ),
    )


def document(answer: routes.Explanation, *, with_inputs: bool = True) -> Page[routes.RouteTable]:
    """The explanation for programs: the table and its steps, and the inputs and state as stored, which may be long."""
    texts = {"inputs": answer.inputs, "before": answer.before} if with_inputs else {}
    stored = {name: json.loads(text) if text else None for name, text in texts.items()}
    facts = {"steps": list(answer.steps), "replays": answer.replays, "table": to_json_value(answer.table), **stored}
    return Page(schema=EXPLANATION_SCHEMA, title="", facts=facts, fields=(), columns=(), rows=())


def require_replay(answer: routes.Explanation) -> None:
    """Raises `ClientError` if repeating the decision did not give the same table."""
    if not answer.replays:
        raise ClientError(
            f"repeating the decision from the stored inputs does not give generation {answer.table.generation}",
            hint=f"version {answer.table.provenance.code_version} built it; does the collector run another version?",
        )
