"""Differentials from real tables: coverage, the control target, change points, and the parts."""

from typing import Any

import pytest

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_collector.queries import differentials as queries
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.differentials import differentials, region_costs
from isochrone_wire.answers import Decision, Differential, Metric, Selection, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import RegionCost
from isochrone_wire.model import MINUTE_US, SECOND_US, Outcome, Sample, Vantage

MS = 1_000
US, SG, EU = (Vantage(name=f"{region}-1", region=region) for region in ("us", "sg", "eu"))
PLAN = """\
baseline: us
control: sim/c
targets:
  - {model: a, provider: sim, base_url: http://h}
  - {model: c, provider: sim, base_url: http://h}
"""
WINDOW = Window(from_at=DAY_AT, until_at=DAY_AT + HOUR_US)
CONNECTED: dict[str, Any] = {"dns_us": 1 * MS, "tcp_us": 10 * MS, "tls_us": 20 * MS, "rtt_us": 10 * MS}
FURTHER: dict[str, Any] = {"dns_us": 1 * MS, "tcp_us": 50 * MS, "tls_us": 100 * MS, "rtt_us": 50 * MS}
FAILED: dict[str, Any] = {"outcome": Outcome.HTTP_ERROR, "ttft_us": None}


class World:
    """An hour of sixty rounds of two targets, planned from the first on."""

    def __init__(self, local: InProcessCollector) -> None:
        self.local = local

    async def begin(self, plan: str = PLAN) -> None:
        await self.local.turn_to(DAY_AT)
        change = await self.local.plans.apply(plan, dry_run=False, applied_by="a test")
        assert change.problems == ()
        await self.local.turn_to(DAY_AT + HOUR_US)

    def id_of(self, model: str) -> int:
        plan = self.local.plans.current
        assert plan is not None
        return next(target.id for target in plan.targets if target.model == model)

    def samples(self, model: str, numbers: range, ttft_us: int = 400 * MS, **more: Any) -> list[Sample]:
        """One sample in each round of those numbers; values differ a little from round to round."""
        target_id = self.id_of(model)
        first = DAY_AT + (target_id - DAY_AT) % MINUTE_US
        told: dict[str, Any] = {"outcome": Outcome.OK, "ttft_us": ttft_us} | more
        found = []
        for number in numbers:
            round_at = first + number * MINUTE_US
            wobble = {} if told["ttft_us"] is None else {"ttft_us": told["ttft_us"] + number * 7 % 11 * MS}
            found.append(
                Sample(**{"target_id": target_id, "round_at": round_at, "dispatched_at": round_at} | told | wobble)
            )
        return found

    async def push(self, vantage: Vantage, *lots: list[Sample]) -> None:
        await self.local.push(vantage, [sample for lot in lots for sample in lot])

    async def asked(
        self, *, explain: bool = False, against: tuple[str, ...] = (), **selected: Any
    ) -> dict[str, Differential]:
        selection = Selection(window=WINDOW, **selected)
        found = await differentials(
            self._at_the_end(),
            selection,
            baseline="",
            against=against,
            metric=Metric.TTFT,
            explain=explain,
        )
        return {line.target: line for line in found.differentials}

    async def costs(self, **selected: Any) -> tuple[RegionCost, ...]:
        selection = Selection(window=WINDOW, **selected)
        return (await region_costs(self._at_the_end(), selection, metric=Metric.TTFT)).costs

    def _at_the_end(self) -> QueryContext:
        self.local.clock.at = DAY_AT + HOUR_US
        return QueryContext(database=self.local.database, plans=self.local.plans, clock=self.local.clock)


@pytest.fixture
async def world(local: InProcessCollector) -> World:
    """A planned hour."""
    made = World(local)
    await made.begin()
    return made


ALL = range(60)


async def test_what_both_sides_failed_and_missed_is_told(world: World) -> None:
    """Each side has its rounds, the share of planned ones recorded, and the share of probes that failed."""
    await world.push(US, world.samples("a", ALL), world.samples("c", ALL))
    await world.push(SG, world.samples("a", range(36), 500 * MS), world.samples("a", range(36, 48), **FAILED))
    await world.push(SG, world.samples("c", ALL))
    line = (await world.asked())["sim/a"]
    assert (line.decision, line.n) == (Decision.SLOWER, 36)
    assert (line.baseline_side.n, line.baseline_side.coverage) == (60, 1.0)
    assert (line.region_side.n, line.region_side.coverage) == (36, 0.8)
    assert line.region_side.failures is not None
    assert (line.region_side.failures.value, line.region_side.failures.n) == (0.25, 48)
    assert line.q_value is not None
    assert line.q_value < 0.001


async def test_a_region_that_was_away_decides_nothing(world: World) -> None:
    """With less than half of the planned rounds recorded, a difference is undecided; the reason names the side."""
    await world.push(US, world.samples("a", ALL), world.samples("c", ALL))
    await world.push(SG, world.samples("a", range(18), 500 * MS), world.samples("c", ALL))
    line = (await world.asked())["sim/a"]
    assert (line.decision, line.reason) == (Decision.UNDECIDED, "sg recorded 30 % of its rounds; 50 % needed")
    assert line.shift is not None


async def test_a_region_whose_control_fails_decides_nothing(world: World) -> None:
    """If the control target fails, the region itself has a problem, even if only other targets are selected."""
    await world.push(US, world.samples("a", ALL), world.samples("c", ALL))
    await world.push(SG, world.samples("a", ALL, 500 * MS), world.samples("c", ALL, **FAILED))
    found = await world.asked(targets=("sim/a",))
    assert list(found) == ["sim/a"]
    assert found["sim/a"].reason == "sg has a problem of its own: 0 % of 60 probes of sim/c succeeded"


async def test_a_baseline_without_its_control_decides_nothing(world: World) -> None:
    """A planned control target without any sample counts like a failing one."""
    await world.push(US, world.samples("a", ALL))
    await world.push(SG, world.samples("a", ALL, 500 * MS), world.samples("c", ALL))
    assert (await world.asked())["sim/a"].reason == "us recorded nothing of the control target sim/c"


async def test_the_newest_change_begins_the_window(world: World) -> None:
    """The newest change of this metric within the window cuts off the rounds before it."""
    await world.push(US, world.samples("a", ALL), world.samples("c", ALL))
    await world.push(SG, world.samples("a", range(30), 200 * MS), world.samples("a", range(30, 60), 600 * MS))
    await world.push(SG, world.samples("c", ALL))
    [changed] = [sample.round_at for sample in world.samples("a", range(30, 31))]
    async with world.local.database.connection() as connection:
        for metric, at in (("ttft", changed), ("ttft", changed - HOUR_US), ("e2e", changed + 60 * SECOND_US)):
            await connection.execute(
                "INSERT INTO drift_event VALUES (%s, 'sg', %s, to_timestamp(%s / 1e6), now(), 1, 2, 1, 30, 30, false)",
                (world.id_of("a"), metric, at),
            )
    found = await world.asked()
    line = found["sim/a"]
    assert (line.since_at, line.n, line.decision) == (changed, 30, Decision.SLOWER)
    assert line.shift == pytest.approx(200 * MS, abs=10 * MS)
    assert found["sim/c"].since_at is None


async def test_a_step_within_the_window_begins_the_present_level(world: World) -> None:
    """A step that no job recorded is found: answer and parts are about the rounds since, and name the level before."""
    await world.push(US, world.samples("a", ALL, 400 * MS, **CONNECTED), world.samples("c", ALL))
    slow = {**CONNECTED, "rtt_us": 110 * MS}
    await world.push(SG, world.samples("a", range(50), 435 * MS, **CONNECTED), world.samples("c", ALL))
    await world.push(SG, world.samples("a", range(50, 60), 835 * MS, **slow))
    [stepped] = [sample.round_at for sample in world.samples("a", range(50, 51))]
    line = (await world.asked(explain=True))["sim/a"]
    assert (line.since_at, line.n, line.decision) == (stepped, 10, Decision.SLOWER)
    assert [(level.n, level.shift) for level in line.levels] == [(50, 35 * MS), (10, 435 * MS)]
    assert {part.name: (part.shift, part.n) for part in line.parts}["rtt"] == (100 * MS, 10)


async def test_region_costs_are_those_since_the_step(world: World) -> None:
    """The best region and the cost of the other come from the rounds since a step, not from a mixture."""
    await world.push(US, world.samples("a", ALL, 400 * MS), world.samples("c", ALL))
    await world.push(SG, world.samples("a", range(32), 300 * MS), world.samples("a", range(32, 60), 700 * MS))
    await world.push(SG, world.samples("c", ALL))
    best, other = await world.costs(targets=("sim/a",))
    assert (best.region, other.region) == ("us", "sg")
    assert (other.added, other.n, other.decision) == (300 * MS, 28, Decision.SLOWER)


async def test_the_parts_say_where_it_comes_from(world: World) -> None:
    """With `explain` every phase has a part, without it none; network and server parts are always there."""
    await world.push(US, world.samples("a", ALL, 400 * MS, **CONNECTED), world.samples("c", ALL))
    await world.push(SG, world.samples("a", ALL, 450 * MS, **FURTHER), world.samples("c", ALL))
    plain, told = (await world.asked())["sim/a"], (await world.asked(explain=True))["sim/a"]
    assert plain.parts == ()
    assert {part.name: part.shift / MS for part in told.parts} == {
        "tcp": 40,
        "tls": 80,
        "rtt": 40,
        "server": 10,
        "dns": 0,
    }
    assert [part.name for part in told.parts] == ["dns", "tcp", "tls", "rtt", "server"]
    assert (plain.network_shift, plain.server_shift) == (40 * MS, 10 * MS)
    assert (told.shift, told.network_shift) == (plain.shift, plain.network_shift)


async def test_a_window_with_one_region_only_is_no_error(world: World) -> None:
    """Before a second region delivers there is no pair: the answer is empty, as right after the first start."""
    assert await world.asked() == {}
    await world.push(US, world.samples("a", range(3)))
    assert await world.asked() == {}


async def test_a_narrow_question_has_the_verdicts_of_the_whole(world: World) -> None:
    """The same data have the same verdict in an answer on everything, one target, one region, and in an explanation."""
    await world.push(US, world.samples("a", ALL, 400 * MS), world.samples("c", ALL))
    await world.push(SG, world.samples("a", ALL, 500 * MS), world.samples("c", ALL))
    await world.push(EU, world.samples("a", ALL, 404 * MS), world.samples("c", ALL, 401 * MS))
    everything = await world.asked(regions=("us", "sg"))
    line = everything["sim/a"]
    assert line.q_value is not None
    for narrow in ({"targets": ("sim/a",)}, {"regions": ("sg",)}, {"against": ("sg",)}, {"targets": ("sim/a",)}):
        found = await world.asked(**({"against": ("sg",)} | narrow))  # type: ignore[arg-type]  # a test's shorthand
        assert found["sim/a"] == line, narrow
    told = (await world.asked(targets=("sim/a",), against=("sg",), explain=True))["sim/a"]
    assert (told.q_value, told.decision) == (line.q_value, line.decision)


async def test_a_family_that_is_too_large_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the plan asks for too many probes, the number of comparisons alone enters the rate, for every question."""
    await world.push(US, world.samples("a", ALL, 400 * MS), world.samples("c", ALL))
    await world.push(SG, world.samples("a", ALL, 500 * MS), world.samples("c", ALL))
    small = (await world.asked())["sim/a"]
    monkeypatch.setattr(queries, "FAMILY_PROBES", 100)
    large, narrow = (await world.asked())["sim/a"], (await world.asked(targets=("sim/a",)))["sim/a"]
    assert large == narrow
    assert small.q_value is not None
    assert large.q_value is not None
    assert small.q_value <= large.q_value <= 2 * small.q_value


async def test_a_plan_sets_the_smallest_difference_that_matters(world: World) -> None:
    """With a margin of 150 ms in the plan, 100 ms are equivalent, for differentials and for region costs."""
    await world.push(US, world.samples("a", ALL, 400 * MS), world.samples("c", ALL))
    await world.push(SG, world.samples("a", ALL, 500 * MS), world.samples("c", ALL))
    before = (await world.asked())["sim/a"]
    assert before.decision is Decision.SLOWER
    assert before.margin == pytest.approx(20.25 * MS)
    await world.begin(f"{PLAN}margins: {{ttft: {{least: 150ms}}}}\n")
    after = (await world.asked())["sim/a"]
    assert (after.decision, after.margin) == (Decision.EQUIVALENT, 150 * MS)
    assert {cost.decision for cost in await world.costs(targets=("sim/a",))} == {Decision.EQUIVALENT}


async def test_a_region_may_be_mixed(world: World) -> None:
    """A region that is slower in most rounds although its median is lower is mixed, in differentials and in costs."""
    for region, values in ((US, (100, 600) * 4), (SG, (300, 800) * 4)):
        # The ninth round is that of both medians.
        cycle = [
            world.samples("a", range(place, 60, 9), ms * MS)
            for place, ms in enumerate((*values, 400 if region is US else 370))
        ]
        await world.push(region, *cycle, world.samples("c", ALL))
    assert (await world.asked())["sim/a"].decision is Decision.MIXED
    _, cost = await world.costs(targets=("sim/a",))
    assert (cost.region, cost.decision) == ("sg", Decision.MIXED)
    assert "no single size describes these rounds" in cost.reason
