"""What readers ask: targets, samples, leaderboards, differentials and coverage. SQL selects, pure modules estimate."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from isochrone_collector.coverage import PlanSpan, planned_rounds, seen_part
from isochrone_collector.differential import Series, Subject, differential
from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.leaderboard import Entry, standings
from isochrone_collector.liveness import Signs, judge
from isochrone_collector.names import display_names, matching, unknown
from isochrone_collector.plans import Plans
from isochrone_collector.spend import Spender, reported, spend_lines
from isochrone_collector.store import plans as plan_table
from isochrone_collector.store import readers, vantages
from isochrone_collector.store.pool import Connection, Database
from isochrone_collector.store.readers import Scope
from isochrone_collector.store.rows import (
    RecordedRow,
    SeriesRow,
    StandingRow,
    TargetRow,
    VantageRow,
    VantageStateRow,
    stored_sample,
)
from isochrone_wire.answers import (
    Coverage,
    CoverageList,
    DifferentialList,
    Leaderboard,
    Metric,
    Selection,
    SpendList,
    StoredSample,
    TargetList,
    VantageList,
    VantageStatus,
    Window,
)
from isochrone_wire.model import DAY_US, Plan

MAX_SAMPLES = 10_000
DEFAULT_SAMPLES = 1_000
MAX_WINDOW_US = 400 * DAY_US
_SIGNS = [field.name for field in fields(Signs)]
_VITALS = {field.name for field in fields(VantageStatus)}
# Instants a reader may speak of: from 1970 to the year 9999.
_LAST_AT = 253_402_300_799_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A selection with its names looked up: the targets it is about by id, each under a distinct name."""

    scope: Scope
    names: dict[int, str]
    targets: dict[int, TargetRow]
    known_regions: list[str]


class Observatory:
    """Answers readers. Every method raises `BadRequest`, `UnknownName` and `DatabaseUnavailable`."""

    def __init__(self, *, database: Database, plans: Plans, clock: Callable[[], int]) -> None:
        self._database = database
        self._plans = plans
        self._clock = clock

    def targets(self) -> TargetList:
        """The targets of the plan in force."""
        plan = self._plans.current
        if plan is None:
            return TargetList(plan_version=0, baseline="")
        return TargetList(plan_version=plan.version, baseline=plan.baseline, targets=plan.targets)

    async def samples(self, selection: Selection, *, limit: int) -> list[StoredSample]:
        """The newest samples of a selection, newest first; `limit` 0 means 1 000, and 10 000 is the most."""
        if not 0 <= limit <= MAX_SAMPLES:
            raise BadRequest(f"limit {limit} is outside 0 to {MAX_SAMPLES}")
        async with self._database.connection() as connection:
            question = await _look_up(connection, selection)
            records = await readers.samples(connection, question.scope, limit=limit or DEFAULT_SAMPLES)
        return [stored_sample(record, target=question.names[record["target_id"]]) for record in records]

    async def leaderboard(self, selection: Selection) -> Leaderboard:
        """The targets that have samples, ranked by median TTFT within each region."""
        async with self._database.connection() as connection:
            question = await _look_up(connection, selection)
            rows = await readers.standings(connection, question.scope)
        entries = [_entry(row, question) for row in rows]
        return Leaderboard(window=selection.window, standings=await asyncio.to_thread(standings, entries))

    async def differentials(
        self, selection: Selection, *, baseline: str, against: Sequence[str], metric: str
    ) -> DifferentialList:
        """One differential per target and region against the baseline, which is the plan's when it is empty.

        Targets of the plan in force always have their line, others where they have values.
        """
        measure = _metric(metric or Metric.TTFT.value)
        reference = baseline or self.targets().baseline
        if not reference:
            raise BadRequest("no baseline: name a region, or apply a plan that does")
        async with self._database.connection() as connection:
            question = await _look_up(connection, selection)
            _check_regions((reference, *against), question.known_regions)
            if reference in against:
                raise BadRequest(f"{reference!r} is the baseline; it has no differential against itself")
            regions = list(dict.fromkeys(against)) or await _other_regions(connection, question.scope, reference)
            scope = Scope(window=selection.window, target_ids=question.scope.target_ids, regions=(reference, *regions))
            rows = await readers.series(connection, scope, measure)
        lines = self._subjects(question, rows, metric=measure, baseline=reference, regions=regions)
        answers = await asyncio.to_thread(lambda: tuple(differential(*line) for line in lines))
        return DifferentialList(window=selection.window, differentials=answers)

    def _subjects(
        self, question: _Question, rows: Iterable[SeriesRow], *, metric: Metric, baseline: str, regions: Sequence[str]
    ) -> list[tuple[Subject, Series, Series]]:
        series = {
            (row.target_id, row.region): Series(rounds=row.rounds, values=row.medians, censored=row.censored)
            for row in rows
        }
        planned = {target.id for target in self.targets().targets}
        shown = planned | {target_id for target_id, _ in series}
        return [
            (
                Subject(
                    target=question.names[row.id],
                    provider=row.provider,
                    model=row.model,
                    metric=metric,
                    baseline=baseline,
                    region=region,
                ),
                series.get((row.id, baseline), Series()),
                series.get((row.id, region), Series()),
            )
            for row in question.targets.values()
            if row.id in shown
            for region in regions
        ]

    async def coverage(self, selection: Selection) -> CoverageList:
        """For each vantage and target: the rounds planned until now, and what was recorded of them."""
        async with self._database.connection() as connection:
            question = await _look_up(connection, selection)
            everyone = await vantages.vantages(connection)
            rows = await readers.recorded(connection, question.scope)
            spans = await self._plans.spans(connection, selection.window)
        regions = question.scope.regions
        present = [vantage for vantage in everyone if regions is None or vantage.region in regions]
        lines = [
            line for vantage in present for line in _coverage(vantage, rows, spans, question, now_at=self._clock())
        ]
        return CoverageList(window=selection.window, coverage=tuple(lines))

    async def vantages(self) -> VantageList:
        """Every vantage ever heard of, and how it is doing."""
        async with self._database.connection() as connection:
            rows = await vantages.states(connection)
        now_at, plan = self._clock(), self._plans.current
        statuses = tuple(_status(row, now_at=now_at, plan=plan) for row in rows)
        return VantageList(plan_version=self._plans.version, answered_at=now_at, vantages=statuses)

    async def spend(self, selection: Selection) -> SpendList:
        """What each vantage of the selection has spent today (UTC) with each provider; the window is not looked at."""
        async with self._database.connection() as connection:
            question = await _find(connection, selection)
            rows = await vantages.spenders(connection)
        regions = question.scope.regions
        providers = {row.provider for row in question.targets.values()} if selection.targets else None
        present = [row for row in rows if regions is None or row.region in regions]
        spenders = [Spender(vantage=row.name, region=row.region, reported=reported(row.spend)) for row in present]
        plan, now_at = self._plans.current or Plan(version=0, baseline=""), self._clock()
        lines = (spend_lines(spender, plan=plan, now_at=now_at, providers=providers) for spender in spenders)
        return SpendList(spend=tuple(line for of_one in lines for line in of_one))


async def _look_up(connection: Connection, selection: Selection) -> _Question:
    _check_window(selection.window)
    return await _find(connection, selection)


async def _find(connection: Connection, selection: Selection) -> _Question:
    regions = await vantages.regions(connection)
    _check_regions(selection.regions, regions)
    known = await plan_table.targets(connection)
    names = display_names({row.id: (row.name, row.last_version) for row in known})
    wanted = _match_targets(selection.targets, sorted(names.values()))
    targets = {row.id: row for row in known if wanted is None or names[row.id] in wanted}
    scope = Scope(window=selection.window, target_ids=tuple(targets), regions=selection.regions or None)
    return _Question(scope=scope, names=names, targets=targets, known_regions=regions)


def _check_window(window: Window) -> None:
    if not 0 <= window.from_at < window.until_at <= _LAST_AT:
        raise BadRequest("the window is empty or missing: from_at must lie before until_at")
    if window.until_at - window.from_at > MAX_WINDOW_US:
        raise BadRequest(f"the window is longer than {MAX_WINDOW_US // DAY_US} days")


def _check_regions(names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownName(unknown("region", name, known))


def _match_targets(patterns: Sequence[str], known: Sequence[str]) -> set[str] | None:
    """The names the patterns ask for; `None` when they ask for all."""
    if not patterns:
        return None
    wanted: set[str] = set()
    for pattern in patterns:
        found = matching(pattern, known)
        if not found:
            raise UnknownName(unknown("target", pattern, known))
        wanted.update(found)
    return wanted


def _metric(name: str) -> Metric:
    try:
        return Metric(name)
    except ValueError:
        raise BadRequest(unknown("metric", name, [metric.value for metric in Metric])) from None


async def _other_regions(connection: Connection, scope: Scope, baseline: str) -> list[str]:
    found = scope.regions or await readers.regions_with_samples(connection, scope)
    return [region for region in found if region != baseline]


def _entry(row: StandingRow, question: _Question) -> Entry:
    target = question.targets[row.target_id]
    return Entry(
        region=row.region,
        target=question.names[row.target_id],
        provider=target.provider,
        model=target.model,
        ttft_us=row.ttft_us or (),
        censored_us=row.censored_us or (),
        tokens_per_second=row.tokens_per_second or (),
        failed=row.failed,
        usd_per_m_output=target.usd_per_m_output,
        newest_at=row.newest_at,
    )


def _coverage(
    vantage: VantageRow, rows: Sequence[RecordedRow], spans: Sequence[PlanSpan], question: _Question, *, now_at: int
) -> Iterable[Coverage]:
    own = {row.target_id: row for row in rows if row.vantage_id == vantage.id}
    oldest_at = min((row.oldest_at for row in own.values()), default=None)
    part = seen_part(question.scope.window, first_seen_at=vantage.first_seen_at, oldest_at=oldest_at, now_at=now_at)
    for target_id in question.targets:
        planned = planned_rounds(target_id, spans, part)
        row = own.get(target_id)
        if planned or row:
            yield Coverage(
                vantage=vantage.name,
                region=vantage.region,
                target=question.names[target_id],
                planned=planned,
                recorded=row.recorded if row else 0,
                outcomes=row.outcomes if row else {},
                newest_at=row.newest_at if row else None,
            )


def _status(row: VantageStateRow, *, now_at: int, plan: Plan | None) -> VantageStatus:
    said = asdict(row)
    liveness, reason = judge(Signs(**{name: said[name] for name in _SIGNS}), now_at=now_at, plan=plan)
    kept = {name: part for name, part in said.items() if name in _VITALS}
    return VantageStatus(liveness=liveness, reason=reason, **kept)
