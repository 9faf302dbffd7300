"""The encoder process: large batches get the same result in it, whatever happens to the process."""

import asyncio
import os
import pickle
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_collector.ingest import row_encoder
from isochrone_collector.ingest.raw_push import decode_push
from isochrone_collector.ingest.row_encoder import RowEncoder
from isochrone_collector.ingest.row_encoding import ValidationContext, encode
from isochrone_collector.ingest.validation import PushBatch
from isochrone_wire import codec
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, Batch, Outcome, Sample, Vantage

NOW_AT = 1_795_248_000_000_000
CRITERIA = ValidationContext(
    targets=frozenset({7, 8}), window=Window(from_at=NOW_AT - DAY_US, until_at=NOW_AT + DAY_US)
)
STARTED_WITHIN_S = 30.0

A_COLLECTOR = """
import asyncio
from isochrone_collector.ingest.row_encoder import EncoderProcess

async def main():
    worker = await EncoderProcess.start()
    print(worker.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def a_batch(seq: int = 1, *, target_id: int = 7, rounds: int = 200) -> PushBatch:
    """A batch with one late sample and one out of bounds."""
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
async def encoder() -> AsyncIterator[RowEncoder]:
    encoder = RowEncoder(processes=True)
    await until_up(encoder)
    yield encoder
    await encoder.close()


async def until_up(encoder: RowEncoder) -> None:
    batch = a_batch()
    async with asyncio.timeout(STARTED_WITHIN_S):
        while encoder.pid is None:
            await encoder.encode(batch, CRITERIA)
            await asyncio.sleep(0.1)


def is_running(pid: int | None) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(STARTED_WITHIN_S):
        while is_running(pid):
            await asyncio.sleep(0.02)


async def test_the_process_packs_as_the_thread_does(encoder: RowEncoder) -> None:
    """A batch gets the same rows in the process as in a thread, with late and rejected samples and unknown targets."""
    for batch in (a_batch(), a_batch(target_id=9)):
        assert await encoder.encode(batch, CRITERIA) == encode(batch, CRITERIA)
    encoded = await encoder.encode(a_batch(), CRITERIA)
    assert encoded is not None
    assert (encoded.rows.rows, encoded.late_rows.rows, len(encoded.rejections)) == (200, 1, 1)


async def test_packed_rows_do_not_wait_for_the_collector() -> None:
    """The pipe holds more than pipes do by default, so that the process packs on while the collector is busy."""
    process, pipe = row_encoder._spawn()
    with process, pipe, socket.socket(socket.AF_UNIX) as usual:
        process.kill()
        held, by_default = (one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for one in (pipe, usual))
    assert held > by_default


async def test_answers_go_to_their_own_callers(encoder: RowEncoder) -> None:
    """With many batches at once and some callers cancelled, every other caller gets its own batch."""
    asked = [asyncio.create_task(encoder.encode(a_batch(seq), CRITERIA)) for seq in range(1, 30)]
    await asyncio.sleep(0)
    for task in asked[::3]:
        task.cancel()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(encoded, asyncio.CancelledError) for encoded in results[::3])
    seqs = [encoded.origin.seq for encoded in results if encoded is not None and not isinstance(encoded, BaseException)]
    assert seqs == [seq for seq in range(1, 30) if seq % 3 != 1]


async def test_a_killed_process_loses_no_batch(encoder: RowEncoder) -> None:
    """A thread packs the batches that a killed process had, and the next ones."""
    pid = encoder.pid
    assert pid is not None
    in_progress = [asyncio.create_task(encoder.encode(a_batch(seq), CRITERIA)) for seq in range(1, 20)]
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    assert await asyncio.gather(*in_progress) == [encode(a_batch(seq), CRITERIA) for seq in range(1, 20)]
    assert not is_running(pid)
    assert encoder.pid != pid
    assert await encoder.encode(a_batch(), CRITERIA) == encode(a_batch(), CRITERIA)


async def test_a_process_that_does_not_answer_is_given_up(encoder: RowEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process delays a batch for some seconds at most: a thread packs it, and the process is killed."""
    monkeypatch.setattr(row_encoder, "_ANSWERED_WITHIN_S", 0.5)
    pid = encoder.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    asked = [encoder.encode(a_batch(seq), CRITERIA) for seq in range(1, 6)]
    assert await asyncio.gather(*asked) == [encode(a_batch(seq), CRITERIA) for seq in range(1, 6)]
    assert not is_running(pid)


async def stopped_and_left(encoder: RowEncoder, *, batches: int) -> int:
    """Stop the process, let callers come and go, and return its pid."""
    pid = encoder.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    for seq in range(1, batches + 1):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await encoder.encode(a_batch(seq), CRITERIA)
    return pid


async def test_batches_whose_callers_left_do_not_pile_up(encoder: RowEncoder) -> None:
    """A stopped process with enough batches gets no more; if it is killed, the next caller notices."""
    pid = await stopped_and_left(encoder, batches=3)
    assert await encoder.encode(a_batch(9), CRITERIA) == encode(a_batch(9), CRITERIA)
    os.kill(pid, signal.SIGCONT)
    pid = await stopped_and_left(encoder, batches=2)
    os.kill(pid, signal.SIGKILL)
    await until_gone(pid)
    await asyncio.sleep(0.1)
    assert await encoder.encode(a_batch(9), CRITERIA) == encode(a_batch(9), CRITERIA)
    assert encoder.pid != pid


async def test_a_thread_packs_what_the_process_cannot(encoder: RowEncoder) -> None:
    """A batch that fails in the process is encoded in a thread."""
    broken = replace(a_batch(), content=b"\xff\xff")
    assert await encoder.encode(broken, CRITERIA) == encode(a_batch(), CRITERIA)


async def test_an_error_is_raised_to_its_own_caller(encoder: RowEncoder) -> None:
    """The error of one batch is raised to its caller, and to no other."""

    def broken() -> bytes:
        raise ValueError("broken")

    bad = replace(a_batch(), decode_columns=broken, content=b"\xff\xff")  # type: ignore[arg-type]  # that is the point
    results = await asyncio.gather(
        encoder.encode(bad, CRITERIA), encoder.encode(a_batch(), CRITERIA), return_exceptions=True
    )
    assert isinstance(results[0], ValueError)
    assert results[1] == encode(a_batch(), CRITERIA)


async def test_an_unreadable_answer_loses_no_batch(encoder: RowEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an answer cannot be unpickled, a thread packs the batch at once, and the process is replaced."""

    def broken(_content: bytes) -> object:
        raise pickle.UnpicklingError("broken")

    pid = encoder.pid
    monkeypatch.setattr(pickle, "loads", broken)
    async with asyncio.timeout(row_encoder._ANSWERED_WITHIN_S / 2):
        assert await encoder.encode(a_batch(), CRITERIA) == encode(a_batch(), CRITERIA)
    monkeypatch.undo()
    assert not is_running(pid)
    assert encoder.pid != pid


async def test_a_request_that_cannot_be_sent_gets_no_answer(encoder: RowEncoder) -> None:
    """The answers to later requests are not those of earlier ones."""
    with pytest.raises((pickle.PicklingError, AttributeError)):
        await encoder.encode(replace(a_batch(), received_at=lambda: NOW_AT), CRITERIA)  # type: ignore[arg-type]  # the point
    for rounds in (200, 150):
        assert await encoder.encode(a_batch(rounds=rounds), CRITERIA) == encode(a_batch(rounds=rounds), CRITERIA)
    assert encoder.pid is not None


async def test_ctrl_c_is_for_the_collector(encoder: RowEncoder) -> None:
    """A terminal sends SIGINT to every process; the encoder process ignores it."""
    assert encoder.pid is not None
    os.kill(encoder.pid, signal.SIGINT)
    await asyncio.sleep(0.1)
    assert await encoder.encode(a_batch(), CRITERIA) == encode(a_batch(), CRITERIA)
    assert encoder.pid is not None


async def test_closing_ends_the_process() -> None:
    """A collector that stops ends its encoder process, also one that is just starting."""
    encoder = RowEncoder(processes=True)
    await until_up(encoder)
    pid = encoder.pid
    assert pid is not None
    await encoder.close()
    assert not is_running(pid)
    starting = RowEncoder(processes=True)
    await starting.encode(a_batch(), CRITERIA)
    await starting.close()
    assert starting.pid is None


async def test_a_killed_collector_leaves_no_process() -> None:
    """The encoder process also ends when the collector is killed with SIGKILL."""
    collector = await asyncio.create_subprocess_exec(sys.executable, "-c", A_COLLECTOR, stdout=PIPE)
    assert collector.stdout is not None
    pid = int(await collector.stdout.readline())
    assert is_running(pid)
    collector.kill()
    await collector.communicate()
    await until_gone(pid)


async def test_the_process_starts_in_a_deleted_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process needs neither the collector's working folder nor its main program."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    process = await row_encoder.EncoderProcess.start()
    await process.close()
