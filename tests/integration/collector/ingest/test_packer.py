"""Large batches are packed in a process of its own: with the same result, whatever becomes of that process."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_collector.ingest import packer as packer_module
from isochrone_collector.ingest.packer import Packer
from isochrone_collector.ingest.packing import Criteria, pack
from isochrone_collector.ingest.raw_push import decode_push
from isochrone_collector.ingest.validation import PushBatch
from isochrone_wire import codec
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, Batch, Outcome, Sample, Vantage

NOW_AT = 1_795_248_000_000_000
CRITERIA = Criteria(
    targets=frozenset({7, 8}), window=Window(from_at=NOW_AT - DAY_US, until_at=NOW_AT + DAY_US), final=False
)
STARTED_WITHIN_S = 30.0

A_COLLECTOR = """
import asyncio
from isochrone_collector.ingest.packer import PackerProcess

async def main():
    worker = await PackerProcess.start()
    print(worker.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def a_batch(seq: int = 1, *, target_id: int = 7, rounds: int = 200) -> PushBatch:
    """Samples, one of them late and one of them out of bounds."""
    samples = [
        Sample(target_id=target_id, round_at=NOW_AT - n, dispatched_at=NOW_AT, outcome=Outcome.OK, edge=f"e{n}")
        for n in range(rounds)
    ]
    samples += [
        replace(samples[0], round_at=NOW_AT - 3 * DAY_US, dispatched_at=NOW_AT - 3 * DAY_US),
        replace(samples[0], ttft_us=-1),
    ]
    batch = Batch(vantage=Vantage(name="v", region="us"), epoch=5, seq=seq, samples=tuple(samples))
    return decode_push(codec.encode(batch).SerializeToString(), NOW_AT)


@pytest.fixture
async def packer() -> AsyncIterator[Packer]:
    """A packer whose process is up."""
    packer = Packer(processes=True)
    await until_up(packer)
    yield packer
    await packer.close()


async def until_up(packer: Packer) -> None:
    """Ask until there is a process."""
    async with asyncio.timeout(STARTED_WITHIN_S):
        while packer.pid is None:
            await packer.pack(a_batch(), CRITERIA)
            await asyncio.sleep(0.02)


def is_running(pid: int | None) -> bool:
    """Whether there is such a process; one that has ended and waits for its parent is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until_gone(pid: int) -> None:
    """Wait for the end of a process."""
    async with asyncio.timeout(STARTED_WITHIN_S):
        while is_running(pid):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("final", [True, False])
async def test_the_process_packs_as_the_thread_does(packer: Packer, *, final: bool) -> None:
    """Where a batch is packed makes no difference to what is stored: not for late and rejected samples, and not where
    targets are unknown.
    """
    criteria = replace(CRITERIA, final=final)
    for batch in (a_batch(), a_batch(target_id=9)):
        assert await packer.pack(batch, criteria) == pack(batch, criteria)
    packed = await packer.pack(a_batch(), criteria)
    assert packed is not None
    assert (packed.rows.rows, packed.late_rows.rows, len(packed.rejections)) == (200, 1, 1)


async def test_answers_come_to_whom_they_are_for(packer: Packer) -> None:
    """Many batches at once, some of whose askers go away: everyone else gets the packed form of their own batch."""
    asked = [asyncio.create_task(packer.pack(a_batch(seq), CRITERIA)) for seq in range(1, 30)]
    await asyncio.sleep(0)
    for task in asked[::3]:
        task.cancel()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(packed, asyncio.CancelledError) for packed in results[::3])
    seqs = [packed.origin.seq for packed in results if packed is not None and not isinstance(packed, BaseException)]
    assert seqs == [seq for seq in range(1, 30) if seq % 3 != 1]


async def test_a_killed_process_costs_nothing_but_time(packer: Packer) -> None:
    """Killed with batches under way, which are packed all the same; a thread goes on."""
    pid = packer.pid
    assert pid is not None
    under_way = [asyncio.create_task(packer.pack(a_batch(seq), CRITERIA)) for seq in range(1, 20)]
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    assert await asyncio.gather(*under_way) == [pack(a_batch(seq), CRITERIA) for seq in range(1, 20)]
    assert not is_running(pid)
    assert packer.pid != pid
    assert await packer.pack(a_batch(), CRITERIA) == pack(a_batch(), CRITERIA)


async def test_a_process_that_says_nothing_is_given_up(packer: Packer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped, it holds nobody up for longer than some seconds: a thread packs what it had, and it is gone."""
    monkeypatch.setattr(packer_module, "_ANSWERED_WITHIN_S", 0.5)
    pid = packer.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    asked = [packer.pack(a_batch(seq), CRITERIA) for seq in range(1, 6)]
    assert await asyncio.gather(*asked) == [pack(a_batch(seq), CRITERIA) for seq in range(1, 6)]
    assert not is_running(pid)


async def stopped_and_left(packer: Packer, *, batches: int) -> int:
    """The pid of its process, stopped, after so many askers came and went."""
    pid = packer.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    for seq in range(1, batches + 1):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await packer.pack(a_batch(seq), CRITERIA)
    return pid


async def test_batches_whose_callers_left_do_not_pile_up(packer: Packer) -> None:
    """What a stopped process still has is not added to: whoever comes next is served by the thread."""
    pid = await stopped_and_left(packer, batches=3)
    assert await packer.pack(a_batch(9), CRITERIA) == pack(a_batch(9), CRITERIA)
    os.kill(pid, signal.SIGCONT)


async def test_a_process_that_nobody_waits_for_is_missed_too(packer: Packer) -> None:
    """Killed while all it had was of askers who left: whoever comes next finds that out, so that another is started."""
    pid = await stopped_and_left(packer, batches=2)
    os.kill(pid, signal.SIGKILL)
    await until_gone(pid)
    await asyncio.sleep(0.1)
    assert await packer.pack(a_batch(9), CRITERIA) == pack(a_batch(9), CRITERIA)
    assert packer.pid != pid


async def test_what_the_process_cannot_do_the_thread_does(packer: Packer) -> None:
    """Bytes that the process cannot read are no reason to lose a batch."""
    broken = replace(a_batch(), content=b"\xff\xff")
    assert await packer.pack(broken, CRITERIA) == pack(a_batch(), CRITERIA)


async def test_an_error_is_raised_to_its_own_caller(packer: Packer) -> None:
    """What goes wrong with one batch is raised to whoever brought it, and to nobody else."""

    def broken() -> bytes:
        raise ValueError("broken")

    bad = replace(a_batch(), decode_columns=broken, content=b"\xff\xff")  # type: ignore[arg-type]  # that is the point
    results = await asyncio.gather(packer.pack(bad, CRITERIA), packer.pack(a_batch(), CRITERIA), return_exceptions=True)
    assert isinstance(results[0], ValueError)
    assert results[1] == pack(a_batch(), CRITERIA)


async def test_ctrl_c_is_for_the_collector(packer: Packer) -> None:
    """A terminal sends the signal to every process; what is under way is packed still."""
    assert packer.pid is not None
    os.kill(packer.pid, signal.SIGINT)
    await asyncio.sleep(0.1)
    assert await packer.pack(a_batch(), CRITERIA) == pack(a_batch(), CRITERIA)
    assert packer.pid is not None


async def test_closed_it_leaves_nothing_behind() -> None:
    """A collector that stops ends its process, also one that is just starting."""
    packer = Packer(processes=True)
    await until_up(packer)
    pid = packer.pid
    assert pid is not None
    await packer.close()
    assert not is_running(pid)
    starting = Packer(processes=True)
    await starting.pack(a_batch(), CRITERIA)
    await starting.close()
    assert starting.pid is None


async def test_a_killed_collector_leaves_nothing_behind() -> None:
    """SIGKILL gives a collector no chance to end its process, which ends all the same."""
    collector = await asyncio.create_subprocess_exec(sys.executable, "-c", A_COLLECTOR, stdout=PIPE)
    assert collector.stdout is not None
    pid = int(await collector.stdout.readline())
    assert is_running(pid)
    collector.kill()
    await collector.communicate()
    await until_gone(pid)
