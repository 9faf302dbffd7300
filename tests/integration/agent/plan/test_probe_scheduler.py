"""Rounds in a running loop, with a real server and a real spool: every round ends in its samples."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fixtures.peer import ANSWER, STREAM_HEAD, peer, saying
from fixtures.simulator import Simulator
from isochrone_agent.clock import now_at
from isochrone_agent.errors import SpoolError
from isochrone_agent.plan import probe_scheduler
from isochrone_agent.plan.budget import max_round_cost
from isochrone_agent.plan.credentials import Credential, Keyring
from isochrone_agent.plan.probe_scheduler import ProbeScheduler
from isochrone_agent.plan.schedule import timings
from isochrone_agent.probe.prober import Prober
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_wire.model import (
    SECOND_US,
    Budget,
    ConnectionUse,
    Outcome,
    Overlap,
    Plan,
    Quality,
    Route,
    Sample,
    Spend,
    Target,
    Timeouts,
    Workload,
    day_of,
)
from isochrone_wire.rounds import round_at, rounds_between
from testdata.trust import system_trust

EVERY_US = 200_000
HOUR_NS = 3600 * 10**9
# A machine may be busy; only a probe that is to run into its limit has a short one.
PATIENCE_SECONDS = 60
WORKLOAD = Workload(max_output_tokens=5)
QUICK = Timeouts(connect_us=2_000_000, first_token_us=900_000, gap_us=900_000, total_us=8_000_000)
HASTY = replace(WORKLOAD, timeouts=QUICK)


def target(simulator: Simulator, model: str, number: int = 7, **more: Any) -> Target:
    fields: dict[str, Any] = {"provider": "sim", "every_us": EVERY_US, "workload": WORKLOAD} | more
    return Target(id=number, name=model, model=model, base_url=simulator.base_url, **fields)


class Notebook(AsyncSpool):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.samples: list[Sample] = []

    async def record(self, sample: Sample, spends: Sequence[Spend] = ()) -> None:
        await super().record(sample, spends)
        self.samples.append(sample)


Enough = Callable[[Sequence[Sample]], bool]


class Machine:
    """A round runner with a spool in a folder; its samples can be read while it runs."""

    def __init__(self, spool: Notebook, *, keyring: Keyring, concurrency: int) -> None:
        prober = Prober(vantage="sg-1", tls=system_trust())
        self.rounds = ProbeScheduler(prober, spool, keyring, concurrency=concurrency)
        self.spool = spool

    def samples(self) -> list[Sample]:
        """Return the samples recorded since the last call."""
        found, self.spool.samples = self.spool.samples, []
        return found

    async def until(self, enough: "Enough") -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not enough(self.spool.samples):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def machine(folder: Path, *, keyring: Keyring | None = None, concurrency: int = 8) -> AsyncIterator[Machine]:
    async with Notebook(folder / "spool.sqlite3") as spool:
        made = Machine(spool, keyring=keyring or Keyring(), concurrency=concurrency)
        running = asyncio.create_task(made.rounds.run())
        try:
            yield made
        finally:
            running.cancel()
            await made.rounds.finish(0)


async def run(folder: Path, plan: Plan, enough: Enough, **how: Any) -> list[Sample]:
    async with machine(folder, **how) as made:
        made.rounds.apply_plan(plan)
        await made.until(enough)
        await made.rounds.finish(0)
        found = sorted(made.samples(), key=lambda sample: sample.round_at)
        for of in plan.targets:
            check_one_per_round([sample for sample in found if sample.target_id == of.id], missed=made.rounds.missed)
        return found


def plan_of(*targets: Target, budgets: Sequence[Budget] = ()) -> Plan:
    return Plan(version=1, baseline="us", targets=targets, budgets=tuple(budgets))


def outcomes(samples: Sequence[Sample]) -> Counter[Outcome]:
    return Counter(sample.outcome for sample in samples)


def some(outcome: Outcome, count: int = 1) -> Enough:
    return lambda samples: outcomes(samples)[outcome] >= count


def check_one_per_round(samples: Sequence[Sample], *, missed: int) -> None:
    """Check that every round has exactly one sample, or was counted as missed on a busy machine."""
    rounds = sorted(sample.round_at for sample in samples)
    assert len(rounds) == len(set(rounds)), "a round has two samples"
    between = rounds_between(rounds[0], rounds[-1] + 1, target_id=samples[0].target_id, every_us=EVERY_US)
    assert len(rounds) <= between <= len(rounds) + missed, "a round has none"


def overlapping(samples: Sequence[Sample]) -> int:
    return outcomes(samples)[Outcome.SKIPPED_OVERLAP]


def sent(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.sent]


def blocked(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if Quality.BLOCKED in sample.quality]


async def test_a_slow_target_is_skipped_while_it_answers(fault_simulator: Simulator, tmp_path: Path) -> None:
    """With `overlap: skip`, rounds behind a probe that is answered are skipped, and none is a timeout."""
    of = target(fault_simulator, "fault-slow-headers")
    samples = await run(tmp_path, plan_of(of), lambda found: len(sent(found)) >= 2 and overlapping(found) >= 3)
    first, second, *_ = sent(samples)
    assert first.ttft_us is not None
    assert second.dispatched_at - first.dispatched_at >= first.ttft_us
    assert blocked(samples) == []


async def test_rounds_behind_a_probe_that_hangs_are_timeouts(fault_simulator: Simulator, tmp_path: Path) -> None:
    """A round behind a probe that hangs is a timeout at the time waited, and sends and costs nothing."""
    of = target(fault_simulator, "fault-silence", workload=HASTY)
    budget = Budget(provider="sim", requests_per_day=1000)
    samples = await run(tmp_path, plan_of(of, budgets=[budget]), lambda found: len(blocked(found)) >= 4)
    asked = sent(samples)
    for sample in blocked(samples):
        before = max((other for other in asked if other.round_at < sample.round_at), key=lambda one: one.round_at)
        assert sample.outcome is Outcome.TIMED_OUT
        planned_at = sample.dispatched_at - sample.late_us
        # On a busy machine the probe may have been sent after the instant for which this round was planned.
        assert sample.timeout_us == max(planned_at - before.dispatched_at - (before.connect_us or 0), 0)
        assert sample.timeout_us <= QUICK.first_token_us
        assert "not sent" in (sample.error or "")
    assert [spend.requests for spend in await spent_today(tmp_path)] == [len(asked)]


async def test_overlap_may_be_allowed(fault_simulator: Simulator, tmp_path: Path) -> None:
    """With `overlap: allow` every round sends its probe; without a free slot a round is skipped in time."""
    of = target(fault_simulator, "fault-slow-headers", overlap=Overlap.ALLOW, workload=HASTY)
    samples = await run(tmp_path, plan_of(of), lambda found: len(sent(found)) >= 3)
    assert overlapping(samples) == 0
    samples = sent(samples)
    assert any(later.dispatched_at - one.dispatched_at < QUICK.first_token_us for one, later in pairwise(samples))
    of = target(fault_simulator, "fault-silence", overlap=Overlap.ALLOW)
    samples = await run(tmp_path, plan_of(of), some(Outcome.SKIPPED_NOT_READY, 2), concurrency=1)
    crowded = [s for s in samples if s.outcome is Outcome.SKIPPED_NOT_READY and s.timeout_us is None]
    assert crowded
    assert all("no free slot among 1 probes" in (s.error or "") or s.error == "the agent stopped" for s in crowded)


async def test_a_requested_wait_is_respected(fault_simulator: Simulator, tmp_path: Path) -> None:
    """After a 429 with `retry-after` nothing is sent until the wait is over, also when the wall clock is set back."""
    samples = await run(tmp_path, plan_of(target(fault_simulator, "fault-429")), some(Outcome.SKIPPED_THROTTLED, 3))
    assert samples[0].outcome is Outcome.THROTTLED
    first, *later = sent(samples)
    assert all(sample.dispatched_at - first.dispatched_at >= 2 * SECOND_US for sample in later)


def asks_to_wait(status: int) -> bytes:
    return b"HTTP/1.1 %d x\r\nretry-after: 3600\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status


async def run_against(port: int, folder: Path, enough: Enough, *budgets: Budget) -> list[Sample]:
    of = Target(id=7, name="m", provider="sim", model="m", base_url=f"http://127.0.0.1:{port}/v1", every_us=EVERY_US)
    return await run(folder, plan_of(of, budgets=budgets), enough)


async def test_a_wait_after_a_failure_does_not_hide_it(tmp_path: Path) -> None:
    """After a 503 with a wait of an hour every round counts as failed, and one in five is probed."""
    async with peer(saying(asks_to_wait(503))) as port:
        samples = await run_against(port, tmp_path, lambda found: len(sent(found)) >= 3)
    samples = samples[: samples.index(sent(samples)[2]) + 1]
    assert {(s.outcome, Quality.BLOCKED in s.quality) for s in samples} == {
        (Outcome.HTTP_ERROR, False),
        (Outcome.HTTP_ERROR, True),
    }
    assert [samples.index(one) for one in sent(samples)] == [0, 5, 10]
    assert {(s.error, s.http_status) for s in blocked(samples)} == {
        ("not sent: the provider asked to wait after: HTTP 503", 503)
    }


async def test_a_wait_ends_with_an_answer(tmp_path: Path) -> None:
    """An answer to the one round in five that is probed ends the wait."""
    answers = iter([asks_to_wait(503)])

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(next(answers, STREAM_HEAD + ANSWER))

    async with peer(handle) as port:
        samples = await run_against(port, tmp_path, some(Outcome.OK, 3))
    kinds = [(s.outcome, s.sent) for s in samples[:8]]
    assert kinds == [(Outcome.HTTP_ERROR, True), *[(Outcome.HTTP_ERROR, False)] * 4, *[(Outcome.OK, True)] * 3]


async def test_a_wait_after_a_failure_keeps_the_budget(tmp_path: Path) -> None:
    """Rounds beyond the requests of the day are skipped as such, in a wait too, and none is sent."""
    budget = Budget(provider="sim", requests_per_day=2)
    async with peer(saying(asks_to_wait(503))) as port:
        samples = await run_against(port, tmp_path, some(Outcome.SKIPPED_BUDGET, 6), budget)
    assert len(sent(samples)) == 2
    assert [spend.requests for spend in await spent_today(tmp_path)] == [2]


async def test_a_refusal_for_the_rate_waits_an_hour_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 429 nothing is sent before the time that it names, or before the longest wait is over."""
    monkeypatch.setattr(probe_scheduler, "MAX_WAIT_US", 8 * EVERY_US)
    async with peer(saying(asks_to_wait(429))) as port:
        samples = await run_against(port, tmp_path, lambda found: len(sent(found)) >= 2)
    first, second = sent(samples)[:2]
    assert second.dispatched_at - first.dispatched_at >= 8 * EVERY_US
    assert {s.outcome for s in samples} == {Outcome.THROTTLED, Outcome.SKIPPED_THROTTLED}


async def test_a_paused_target_is_not_probed(fault_simulator: Simulator, tmp_path: Path) -> None:
    """The rounds of a paused target are skipped samples; without the pause it is probed again."""
    of = target(fault_simulator, "fault-crlf", overlap=Overlap.ALLOW)
    async with machine(tmp_path) as made:
        made.rounds.apply_plan(plan_of(replace(of, paused=True)))
        await made.until(some(Outcome.SKIPPED_PAUSED, 3))
        made.rounds.apply_plan(plan_of(of))
        await made.until(some(Outcome.OK, 3))
        await made.rounds.finish(PATIENCE_SECONDS)
        samples, missed = sorted(made.samples(), key=lambda sample: sample.round_at), made.rounds.missed
    found = outcomes(samples)
    in_order = [Outcome.SKIPPED_PAUSED] * found[Outcome.SKIPPED_PAUSED] + [Outcome.OK] * found[Outcome.OK]
    assert [sample.outcome for sample in samples] == in_order
    check_one_per_round(samples, missed=missed)


async def test_a_missing_key_is_recorded(fault_simulator: Simulator, tmp_path: Path) -> None:
    """A target without its key is not probed, and every sample names what is missing."""
    keyring = Keyring({"k": Credential(name="k", hosts=("127.0.0.1",), env="NO_SUCH_VARIABLE_HERE")})
    plan = plan_of(target(fault_simulator, "fault-crlf", credential="k"))
    samples = await run(tmp_path, plan, some(Outcome.SKIPPED_NOT_READY, 2), keyring=keyring)
    assert set(outcomes(samples)) == {Outcome.SKIPPED_NOT_READY}
    assert "NO_SUCH_VARIABLE_HERE" in (samples[0].error or "")


async def test_a_bug_still_ends_in_a_sample(fault_simulator: Simulator, tmp_path: Path) -> None:
    """A round that fails inside the agent is recorded as not ready; the others continue."""
    odd = target(fault_simulator, "fault-crlf", number=8, dialect="klingon")
    # Rendering the tracebacks takes longer than the rounds.
    with capture_logs():
        plan = plan_of(odd, target(fault_simulator, "fault-crlf"))
        samples = await run(
            tmp_path, plan, lambda found: {s.target_id for s in found if s.error or s.ttft_us} == {7, 8}
        )
    assert {s.error for s in samples if s.target_id == 8} == {"the agent failed: KeyError"}
    assert outcomes(samples)[Outcome.OK]


async def test_a_budget_ends_the_day(fault_simulator: Simulator, tmp_path: Path) -> None:
    """After the requests of the day rounds are skipped with the limit, also after a restart on the spool."""
    plan = plan_of(target(fault_simulator, "fault-500"), budgets=[Budget(provider="sim", requests_per_day=2)])
    first = outcomes(await run(tmp_path, plan, some(Outcome.SKIPPED_BUDGET, 2)))
    assert first[Outcome.HTTP_ERROR] == 2
    again = await run(tmp_path, plan, some(Outcome.SKIPPED_BUDGET, 2))
    assert set(outcomes(again)) == {Outcome.SKIPPED_BUDGET}
    assert "requests_per_day of sim is 2: 2 used" in (again[0].error or "")
    async with AsyncSpool(tmp_path / "spool.sqlite3") as spool:
        [spent] = await spool.spend(day_of(now_at()))
    assert (spent.provider, spent.requests) == ("sim", 2)


async def spent_today(folder: Path) -> list[Spend]:
    async with AsyncSpool(folder / "spool.sqlite3") as spool:
        return list(await spool.spend(day_of(now_at())))


async def test_what_may_be_spent_is_on_disk_before_it_is_sent(fault_simulator: Simulator, tmp_path: Path) -> None:
    """A request in flight is charged its maximum in the spool, and corrected; without a budget nothing is written."""
    of = target(fault_simulator, "fault-slow-headers", every_us=400_000)
    budgets = [Budget(provider="sim", requests_per_day=1)]
    for bound in (budgets, []):
        folder = tmp_path / str(len(bound))
        async with machine(folder) as made:
            made.rounds.apply_plan(plan_of(of, budgets=bound))
            while not made.rounds._prober.in_flight:
                await asyncio.sleep(0.01)
            reserved = [(s.requests, s.tokens) for s in await made.spool.spend(day_of(now_at()))]
            assert reserved == ([(1, max_round_cost(of).tokens)] if bound else [])
            # No other round begins, which would be aborted.
            made.rounds.apply_plan(plan_of(budgets=bound))
            await made.rounds.finish(PATIENCE_SECONDS)
            probed = sent(made.samples())
        known = sum((s.prompt_tokens or 0) + (s.output_tokens or 0) for s in probed)
        assert {s.outcome for s in probed} == {Outcome.OK}
        assert [(s.requests, s.tokens) for s in await spent_today(folder)] == [(len(probed), known)]


async def test_no_kill_passes_a_budget(fault_simulator: Simulator, tmp_path: Path) -> None:
    """A round that ends without a sample keeps its reservation, so repeated kills cannot exceed the budget."""
    of = target(fault_simulator, "fault-silence")
    plan = plan_of(of, budgets=[Budget(provider="sim", requests_per_day=2)])
    requests = 0
    for _ in range(4):
        async with machine(tmp_path) as made:
            made.rounds.apply_plan(plan)
            while not (made.rounds._prober.in_flight or made.spool.samples):
                await asyncio.sleep(0.01)
            requests += len(made.rounds._prober.in_flight)
            for task in made.rounds._tasks:
                task.cancel()
            made.spool.record = lost  # type: ignore[method-assign]  # as if the machine were gone
    assert requests == 2
    assert [s.requests for s in await spent_today(tmp_path)] == [2]


async def lost(sample: Sample, spends: Sequence[Spend] = ()) -> None:
    raise SpoolError("gone")


@pytest.mark.parametrize("broken", ["spend", "reserve"])
async def test_an_account_that_cannot_be_kept_closes_the_budget(
    fault_simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """If spend cannot be read or written, a round with a budget is skipped with the reason, until it can."""
    honest, well = getattr(AsyncSpool, broken), asyncio.Event()

    async def failing(self: AsyncSpool, argument: Any) -> Any:
        if not well.is_set():
            raise SpoolError("the disk is gone")
        return await honest(self, argument)

    monkeypatch.setattr(AsyncSpool, broken, failing)
    free = target(fault_simulator, "fault-crlf", number=8, provider="free", overlap=Overlap.ALLOW)
    plan = plan_of(
        target(fault_simulator, "fault-crlf", overlap=Overlap.ALLOW),
        free,
        budgets=[Budget(provider="sim", requests_per_day=1000)],
    )
    async with machine(tmp_path) as made:
        made.rounds.apply_plan(plan)
        await made.until(lambda found: {(7, True), (8, False)} <= {(s.target_id, s.outcome.skipped) for s in found})
        before = made.samples()
        well.set()
        await made.until(lambda found: any(s.target_id == 7 and s.outcome is Outcome.OK for s in found))
        await made.rounds.finish(PATIENCE_SECONDS)
        after = made.samples()
    assert set(outcomes([s for s in before if s.target_id == 7])) == {Outcome.SKIPPED_BUDGET}
    assert all("the disk is gone" in (s.error or "") for s in before if s.target_id == 7)
    assert outcomes([s for s in before if s.target_id == 8])[Outcome.OK]
    assert outcomes([s for s in after if s.target_id == 7])[Outcome.OK]


async def test_a_plan_that_cannot_be_scheduled_changes_nothing(fault_simulator: Simulator, tmp_path: Path) -> None:
    """If the schedule cannot be built the old plan runs on, and no missed round is counted twice."""
    async with machine(tmp_path) as made:
        made.rounds.apply_plan(plan_of(target(fault_simulator, "fault-crlf", every_us=3600 * SECOND_US)))
        made.rounds._schedule.missed = 3
        with pytest.raises(ZeroDivisionError):
            made.rounds.apply_plan(replace(plan_of(target(fault_simulator, "fault-crlf", every_us=0)), version=2))
        assert made.rounds.plan.version == 1
        assert [of.every_us for of in made.rounds._schedule.targets] == [3600 * SECOND_US]
        assert made.rounds.missed == 3


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_targets_that_left_the_plan_leave_nothing(fault_simulator: Simulator, tmp_path: Path) -> None:
    """After many plans neither warm connections nor states of earlier targets remain, of probes in flight either."""
    warm, budget = replace(WORKLOAD, connection=ConnectionUse.WARM), Budget(provider="sim", requests_per_day=1000)
    async with machine(tmp_path) as made:
        before = descriptors()
        for n in range(4):
            of = [target(fault_simulator, "fault-crlf", number=100 * n + k, workload=warm) for k in range(1, 6)]
            slow = target(fault_simulator, "fault-slow-headers", number=100 * n, workload=warm)
            made.rounds.apply_plan(plan_of(*of, slow, budgets=[budget]))
            await made.until(lambda found: len({s.target_id for s in found if s.outcome is Outcome.OK}) >= 5)
            made.samples()
        made.rounds.apply_plan(plan_of())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while made.rounds.in_flight or descriptors() > before:
                await asyncio.sleep(0.02)
        kept = (made.rounds._states, made.rounds._schedule.begun, made.rounds._spend.budgets._in_flight)
        assert kept == ({}, {}, {})


async def test_aborted_rounds_are_recorded(fault_simulator: Simulator, tmp_path: Path) -> None:
    """A stopping agent leaves no round without a sample, and its stop is no timeout of the target."""
    of = target(fault_simulator, "fault-stall", overlap=Overlap.ALLOW, every_us=SECOND_US)
    async with machine(tmp_path, concurrency=1) as made:
        made.rounds.apply_plan(plan_of(of))
        while made.rounds.in_flight < 2:
            await asyncio.sleep(0.01)
        await made.rounds.finish(0.05)
        assert made.rounds.in_flight == 0
        under_way, waiting = sorted(made.samples(), key=lambda sample: sample.round_at)[-2:]
    assert (under_way.outcome, under_way.error) == (
        Outcome.SKIPPED_NOT_READY,
        "the agent stopped before the answer was complete",
    )
    assert under_way.chunks == 5
    assert under_way.timeout_us is not None
    assert under_way.timeout_us >= (under_way.ttft_us or 0)
    assert (waiting.outcome, waiting.timeout_us) == (Outcome.SKIPPED_NOT_READY, None)


async def test_a_sample_that_cannot_be_kept_is_counted(
    fault_simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample that the wire format cannot encode is lost and counted; the others of its burst are recorded."""
    honest = Prober.burst

    async def burst(self: Prober, of: Target, *, round_at: int, key: str | None = None) -> list[Sample]:
        first, *others = await honest(self, of, round_at=round_at, key=key)
        return [replace(first, output_chars=2**70), *others]

    monkeypatch.setattr(Prober, "burst", burst)
    # So rare that the next round never begins before this one is over, on a busy machine too.
    of = target(fault_simulator, "fault-none", every_us=8 * SECOND_US, workload=replace(WORKLOAD, concurrency=3))
    async with machine(tmp_path) as made:
        made.rounds.apply_plan(plan_of(of))
        while not made.rounds.lost:
            await asyncio.sleep(0.02)
        await made.rounds.finish(PATIENCE_SECONDS)
        assert made.rounds.lost == 1
        assert outcomes(made.samples()) == {Outcome.OK: 2}


async def test_jitter_and_spread_are_kept_and_not_called_late(fault_simulator: Simulator, tmp_path: Path) -> None:
    """A round starts after jitter and spread, and lateness is measured from there."""
    of = target(fault_simulator, "fault-500", every_us=SECOND_US, spread_us=300_000)
    (timing,) = timings([of], vantage="sg-1", routes=())
    async with machine(tmp_path) as made:
        made.rounds.apply_plan(plan_of(of))
        await made.until(some(Outcome.HTTP_ERROR, 4))
        samples = made.samples()
    for sample in samples:
        assert sample.round_at == round_at(sample.round_at, target_id=of.id, every_us=of.every_us)
        assert sample.dispatched_at - sample.round_at == timing.offset_us(sample.round_at) + sample.late_us
        assert sample.late_us >= 0


async def test_members_of_a_route_are_probed_together(fault_simulator: Simulator, tmp_path: Path) -> None:
    """Two members have the same rounds and planned starts, though their ids would give them different phases."""
    at = target(fault_simulator, "fault-500", every_us=SECOND_US)
    members = [replace(at, id=n, name=str(n)) for n in (7, 500_007)]
    route = Route(name="r", members=tuple(one.name for one in members))
    async with machine(tmp_path) as made:
        made.rounds.apply_plan(replace(plan_of(*members), routes=(route,)))
        await made.until(some(Outcome.HTTP_ERROR, 6))
        await made.rounds.finish(PATIENCE_SECONDS)
        samples = made.samples()
    mine, theirs = (
        {s.round_at: s.dispatched_at - s.late_us for s in samples if s.target_id == one.id} for one in members
    )
    together = mine.keys() & theirs.keys()
    assert len(together) > 1
    assert {at: mine[at] for at in together} == {at: theirs[at] for at in together}


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the wall clock is ahead by, in nanoseconds, in a list of one."""
    honest, ahead_ns = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: honest() + ahead_ns[0])
    return ahead_ns


@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS])
async def test_the_wall_clock_steps(fault_simulator: Simulator, tmp_path: Path, step: list[int], step_ns: int) -> None:
    """After a step of an hour rounds go on in the new time, and those passed over are not missed."""
    of = target(fault_simulator, "fault-crlf", overlap=Overlap.ALLOW)
    async with machine(tmp_path) as made:
        made.rounds.apply_plan(plan_of(of))
        await made.until(some(Outcome.OK, 2))
        stepped_at, missed_before = now_at(), made.rounds.missed
        step[0] = step_ns
        await made.until(lambda found: len([s for s in found if abs(s.round_at - stepped_at) > 1800 * SECOND_US]) >= 3)
        await made.rounds.finish(PATIENCE_SECONDS)
        samples, missed = made.samples(), made.rounds.missed - missed_before
    after = [s for s in samples if abs(s.round_at - stepped_at) > 1800 * SECOND_US]
    check_one_per_round(after, missed=missed)
    assert {s.round_at % EVERY_US for s in samples} == {of.id % EVERY_US}
    # Figures that a step has spoilt are wrong by an hour.
    assert all(s.late_us < PATIENCE_SECONDS * SECOND_US for s in samples)
    assert missed < 1800 * SECOND_US // EVERY_US
    assert all(s.e2e_us is None or s.e2e_us < PATIENCE_SECONDS * SECOND_US for s in samples)
