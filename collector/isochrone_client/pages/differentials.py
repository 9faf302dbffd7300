"""Differentials: each region compared with the baseline per target, with intervals, decisions and phases."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from isochrone_client import formats
from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.formats import number
from isochrone_client.pages import cells, matrix
from isochrone_client.render.page import SUFFIX_OF, Column, Page, answer_page
from isochrone_wire.answers import Decision, Differential, DifferentialList, Level, Metric, Part, Side, Window
from isochrone_wire.durations import MINUTE_US
from isochrone_wire.json_format import minute
from isochrone_wire.queries.differential_order import select_rows, targets_in_order
from isochrone_wire.text import ESTIMAND, SERVER_CAVEAT

HANDSHAKES = ("dns", "tcp", "tls")
NETWORK = (*HANDSHAKES, "rtt")
ADDENDS = (*NETWORK, "server")
"""The phases that add up to `ttft_cold`. The parts of the server's are not added."""
_QUANTITIES = (
    *("baseline_median", "region_median", "median_difference", "shift", "shift_low", "shift_high", "margin"),
    *("network_shift", "server_shift"),
)
# Coverage below these shares is noted, and failures and probes that are not compared above them.
_GOOD_COVERAGE = 0.9
_FEW_FAILURES = 0.02
# About one round is always in progress.
_MISSING_ROUNDS = 1.5
# A row is stale if its newest round is older than this and than this part of the window.
_STALE_US = 15 * MINUTE_US
_STALE_SHARE = 20
_MOST_TABLES = 3
_DETAILS = "intervals, causes and the reasons of undecided ones: --against REGION, or --wide for all regions"


def page(
    answer: DifferentialList,
    rows: tuple[Differential, ...],
    *,
    metric: Metric,
    now_at: int,
    also: Mapping[str, Callable[[Differential], object]] | None = None,
) -> Page[Differential]:
    """The page of the `rows` of an answer about `metric`, with ages as of `now_at`.

    `also` adds fields to the records for programs.
    """
    stale_at = stale_before(answer.window, now_at=now_at)
    footnotes = cells.Footnotes(remark(row, stale_at=stale_at, now_at=now_at) for row in rows)

    def decision(row: Differential) -> str:
        """The decision, with the time since which it holds if the difference changed within the window."""
        since = f" since {formats.moment(row.since_at or 0, now_at=now_at)}" if has_step(row) else ""
        return footnotes.marked(f"{row.decision}{since}", remark(row, stale_at=stale_at, now_at=now_at))

    return answer_page(
        answer,
        f"{metric}, rounds between {formats.between(answer.window)}",
        _columns(rows, metric, decision),
        rows=rows,
        also=also or {},
        units=dict.fromkeys(_QUANTITIES, SUFFIX_OF[metric.unit]),
        group=lambda row: f"{row.region} against {row.baseline}",
        notes=(
            *footnotes.notes,
            *cells.notes_that_hold((any(row.server_shift is not None for row in rows), f"server: {SERVER_CAVEAT}")),
            *_notes(answer, rows, now_at=now_at),
        ),
    )


def has_many_regions(rows: tuple[Differential, ...]) -> bool:
    """True if the rows are of too many regions for a table of each."""
    return len({row.region for row in rows}) > _MOST_TABLES


def in_one_table(
    answer: DifferentialList, rows: tuple[Differential, ...], *, sort: str, width: int, now_at: int
) -> Page[str]:
    """The rows of many regions for people: a line per target, in the order `sort`, and a column per region."""
    metric, baseline = rows[0].metric, rows[0].baseline
    found = matrix.matrix_of((), rows, metric=metric, baseline=baseline, targets=targets_in_order(rows, sort))
    title = f"{metric} in {formats.display_unit(metric.unit)}, rounds between {formats.between(answer.window)}"
    page = matrix.fitting_page(found, title, width=width)
    return replace(page, notes=(*(page.notes or (matrix.MARKS,)), _DETAILS, *_notes(answer, rows, now_at=now_at)))


def _notes(answer: DifferentialList, rows: tuple[Differential, ...], *, now_at: int) -> Iterator[str]:
    newest_at = max((row.newest_at for row in rows if row.newest_at is not None), default=None)
    yield from (one.sentence for one in answer.missing)
    yield from cells.notes_that_hold(
        (any(row.shift_low is not None for row in rows), ESTIMAND),
        (any(row.shift is not None and not _has_interval(row) for row in rows), cells.EARLY),
        (newest_at is not None, f"newest round {formats.age(newest_at, now_at=now_at)} ago"),
    )


def _columns(
    rows: tuple[Differential, ...], metric: Metric, decision: Callable[[Differential], str]
) -> tuple[Column[Differential], ...]:
    unit = formats.display_unit(metric.unit)

    def of(value: float | None) -> float | None:
        return formats.displayed(value, metric.unit)

    def marked(row: Differential, number: formats.Amount) -> str | formats.Amount:
        if row.shift is None:
            return formats.UNKNOWN
        return number if _has_interval(row) else replace(number, pattern="{}?")

    def style(row: Differential) -> str:
        return "" if _has_interval(row) else "dim"

    def difference(heading: str, part: Callable[[Differential], float | None], priority: int) -> Column[Differential]:
        return Column(
            heading,
            lambda row: marked(row, formats.amount(of(part(row)), signed=True)),
            unit=unit,
            scale="difference",
            priority=priority,
            style=style,
        )

    split = (
        difference("network", lambda row: row.network_shift, 5),
        difference("server", lambda row: row.server_shift, 4),
    )
    return (
        cells.target_column(rows, lambda row: row.target),
        Column(
            "baseline →\nregion",
            lambda row: formats.Amount((of(row.baseline_median), of(row.region_median)), "{} → {}"),
            unit=unit,
            priority=2,
        ),
        difference("difference", lambda row: row.shift, 0),
        Column(
            "interval",
            lambda row: formats.amount_interval(of(row.shift_low), of(row.shift_high), signed=True),
            unit=f"95 %, {unit}",
            scale="difference",
            priority=1,
        ),
        Column(
            "relative",
            lambda row: marked(row, formats.amount_percent(row.shift_percent)),
            unit="%",
            priority=3,
            style=style,
        ),
        *(split if metric.includes_request else ()),
        Column("rounds ≈\nindependent", lambda row: cells.worth(row.n, row.n_eff), priority=6),
        Column("correlation", lambda row: number(row.correlation, decimals=2), priority=7),
        Column("decision", decision, style=lambda row: cells.DECISION_STYLES.get(row.decision, ""), wide=True),
    )


def _has_interval(row: Differential) -> bool:
    return row.shift_low is not None and row.shift_high is not None


def stale_before(window: Window, *, now_at: int) -> int:
    """The instant before which the newest round of a row in this window is old."""
    until_at = min(now_at, window.until_at)
    return until_at - max(_STALE_US, (until_at - window.from_at) // _STALE_SHARE)


def remark(row: Differential, *, stale_at: int, now_at: int) -> str:
    """The footnote of a row with problems, otherwise empty. Instants are in microseconds since the epoch."""
    return "; ".join(dict.fromkeys(_remarks(row, stale_at=stale_at, now_at=now_at)))


def _remarks(row: Differential, *, stale_at: int, now_at: int) -> Iterator[str]:
    if row.decision in (Decision.UNDECIDED, Decision.MIXED) and row.reason:
        yield cells.without_size(row.reason)
    if row.provisional:
        yield cells.PROVISIONAL
    if not row.paired:
        yield f"no rounds in common: {row.region_n} of {row.region} and {row.baseline_n} of {row.baseline}, unpaired"
    if has_step(row):
        yield step_sentence(row, now_at=now_at)
    elif row.since_at is not None:
        yield f"only rounds since the change at {minute(row.since_at)}"
    yield from _problems(row.baseline, row.baseline_side)
    yield from _problems(row.region, row.region_side)
    if row.newest_at is not None and row.newest_at < stale_at:
        yield f"no round for {formats.age(row.newest_at, now_at=now_at)}"


def _problems(region: str, side: Side) -> Iterator[str]:
    """The problems of one side: missing rounds, unless only those in progress are, and failed probes."""
    coverage = side.coverage
    if coverage is not None and coverage < _GOOD_COVERAGE:
        is_in_progress = 0 < side.n * (1 - coverage) < _MISSING_ROUNDS * coverage
        if not is_in_progress:
            yield f"{region} has {number(100 * coverage, decimals=0)} % of its rounds"
    if side.failures is not None and side.failures.value > _FEW_FAILURES:
        yield f"{number(100 * side.failures.value)} % of {side.failures.n} probes failed from {region}"
    if (side.left_out or 0.0) > cells.FEW_LEFT_OUT:
        yield cells.busy(region, side.left_out or 0.0)


def has_step(row: Differential) -> bool:
    """True if the difference changed within the window by the margin or more; a change of a side may leave it."""
    return len(row.levels) > 1 and abs(_step_size(row)) >= (row.margin or 0.0)


def step_sentence(row: Differential, *, now_at: int) -> str:
    """The last step of a row that has one: `+400 ms since 01:07:15: the difference is …, and was … before`."""
    before, present = row.levels[-2:]
    size, since = signed(row, _step_size(row)), formats.moment(row.since_at or 0, now_at=now_at)
    return f"{size} since {since}: the difference is {at_level(row, present)}, and was {at_level(row, before)} before"


def _step_size(row: Differential) -> float:
    return row.levels[-1].shift - row.levels[-2].shift


def at_level(row: Differential, level: Level) -> str:
    """`+435 ms in 12 rounds`."""
    return f"{signed(row, level.shift)} in {cells.counted(level.n, 'round')}"


def signed(row: Differential, value: float) -> str:
    """A difference in the row's metric, with its sign and unit."""
    return f"{number(formats.displayed(value, row.unit), signed=True)} {formats.display_unit(row.unit)}"


def require_decision(
    answer: DifferentialList, rows: tuple[Differential, ...], *, baseline: str, only: str | None
) -> None:
    """Raises `InsufficientError` if the answer has no decision or `only` leaves no row."""
    if not answer.differentials:
        has_baseline = baseline not in {one.region for one in answer.missing}
        wanted = f" from any region but {baseline}" if has_baseline else ""
        raise NoSamplesError(
            f"no samples{wanted} between {formats.between(answer.window)}",
            window=answer.window,
            besides=baseline if has_baseline else "",
            missing=answer.missing,
        )
    if not rows:
        raise InsufficientError(
            f"none of {len(answer.differentials)} differentials is {only}", hint="omit --only to see all of them"
        )
    if all(row.decision is Decision.UNDECIDED for row in answer.differentials):
        all_of = "the only differential is" if len(rows) == 1 else f"all {len(rows)} differentials are"
        nothing = f"nothing is decided: {all_of} undecided"
        if answer.missing:
            raise NoSamplesError(nothing, window=answer.window, missing=answer.missing)
        raise InsufficientError(nothing, hint=cells.MORE_ROUNDS)


_PHASE_NOTES = (
    "all: the sum of the phases, close to the difference of ttft_cold (of ttft if connections are kept open)",
    f"server: {SERVER_CAVEAT}",
    "provider: the part of the server's that the provider reports as its own processing time; edge: the rest of it",
)


def phases_page(answer: DifferentialList) -> Page[Differential]:
    """The page of all differentials with known phases, one table per region."""
    rows = tuple(row for row in select_rows(answer) if row.parts)

    def shift(name: str) -> Column[Differential]:
        def text(row: Differential) -> str | formats.Amount:
            part = part_of(row, name)
            return formats.amount_ms(part.shift, signed=True) if part else formats.UNKNOWN

        return Column(name, text, unit="ms", scale="difference", priority=1)

    return Page(
        schema="isochrone.origins/1",
        title=f"contribution of the phases, rounds between {formats.between(answer.window)}",
        fields=(),
        columns=(
            cells.target_column(rows, lambda row: row.target),
            *map(shift, ADDENDS),
            Column(
                "all",
                lambda row: formats.amount_ms(added(row, ADDENDS), signed=True),
                unit="ms",
                scale="difference",
            ),
            shift("edge"),
            shift("provider"),
            Column("rounds", lambda row: str(max(part.n for part in row.parts)), priority=2),
        ),
        rows=rows,
        group=lambda row: f"{row.region} against {row.baseline}",
        notes=_PHASE_NOTES,
    )


def part_of(row: Differential, name: str) -> Part | None:
    """The part called `name`; `None` if it is unknown."""
    return next((part for part in row.parts if part.name == name), None)


def added(row: Differential, names: tuple[str, ...]) -> float:
    """The sum of the differences of the parts with these names, in microseconds."""
    return sum(part.shift for part in row.parts if part.name in names)
