"""What this machine can do for an instrument: receive timestamps, a steady clock, a disk for the spool, a collector.

Every check is a sentence with a verdict; none raises.
"""

import asyncio
import socket
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import grpc.aio

from isochrone_agent.errors import AgentError
from isochrone_agent.line import open_once
from isochrone_agent.settings import Settings
from isochrone_agent.spool import Spool
from isochrone_agent.spoolfile import connect_read_only
from isochrone_agent.stamps import ANCILLARY_BYTES, enable_receive_stamps, read_stamp
from isochrone_agent.uplink import Collector
from isochrone_wire.model import Plan, Spend

_REACH_SECONDS = 5.0
_CLOCK_READS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `verdict` is `ok`, `note` (works, but less well) or `fail`."""

    subject: str
    verdict: str
    sentence: str


def check_stamps() -> Finding:
    """Whether the kernel stamps what arrives on a TCP socket of this machine."""
    try:
        kernel, waited_ns = _stamped_over_loopback()
    except OSError as error:
        return Finding(subject="receive timestamps", verdict="note", sentence=f"cannot be tried here: {error}")
    if not kernel:
        sentence = "the kernel gives none; reads are stamped by the agent, and a busy machine then shows in the numbers"
        return Finding(subject="receive timestamps", verdict="note", sentence=sentence)
    return Finding(
        subject="receive timestamps",
        verdict="ok",
        sentence=f"from the kernel; a read just now was {waited_ns / 1000:.0f} µs behind its bytes",
    )


def check_clock() -> Finding:
    """How finely the monotonic clock can be read."""
    reads = [time.monotonic_ns() for _ in range(_CLOCK_READS)]
    steps = [after - before for before, after in pairwise(reads) if after > before]
    finest = min(steps, default=1_000_000_000)
    verdict = "ok" if finest < 10_000 else "note"  # noqa: PLR2004  # ten microseconds, a hundredth of what is promised
    return Finding(subject="monotonic clock", verdict=verdict, sentence=f"can be read every {finest / 1000:.2f} µs")


def check_spool(settings: Settings) -> Finding:
    """Whether the spool's folder takes an fsynced write, and how long one takes."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=settings.data_dir, prefix="check-") as scratch:
            started_ns = time.monotonic_ns()
            Spool(Path(scratch) / "spool.sqlite3").close()
            took_ms = (time.monotonic_ns() - started_ns) / 1e6
    except (OSError, AgentError) as error:
        return Finding(subject="spool", verdict="fail", sentence=str(error))
    return Finding(subject="spool", verdict="ok", sentence=f"{settings.data_dir} takes a new spool in {took_ms:.0f} ms")


def spend_on_disk(settings: Settings, day_at: int) -> tuple[Spend, ...]:
    """What the spool says was spent in the day (UTC) that began at `day_at`; nothing where it cannot be read."""
    query = "select provider, day_at, usd, tokens, requests from spend where day_at = ? order by provider"
    try:
        # An agent may be running on it.
        with closing(connect_read_only(settings.data_dir / "spool.sqlite3")) as db:
            rows = db.execute(query, (day_at,)).fetchall()
    except sqlite3.Error:
        return ()
    return tuple(
        Spend(provider=name, day_at=day, usd=usd, tokens=tokens, requests=requests)
        for name, day, usd, tokens, requests in rows
    )


async def check_collector(settings: Settings) -> tuple[Finding, Plan | None]:
    """Whether the collector answers, and the plan it has."""
    async with open_once(settings) as channel:
        try:
            async with asyncio.timeout(_REACH_SECONDS):
                plan = await Collector(channel=channel, vantage=settings.vantage).fetch_plan(None)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no answer in 5 s"
            sentence = f"{settings.collector} does not answer: {why}"
            return Finding(subject="collector", verdict="fail", sentence=sentence), None
    if plan is None or not plan.version:
        sentence = f"{settings.collector} answers, and has no plan yet: isochrone-collector apply plan.yaml"
        return Finding(subject="collector", verdict="note", sentence=sentence), None
    sentence = f"{settings.collector} answers with plan {plan.version}, {len(plan.targets)} targets"
    return Finding(subject="collector", verdict="ok", sentence=sentence), plan


def _stamped_over_loopback() -> tuple[bool, int]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            ours.settimeout(_REACH_SECONDS)
            enable_receive_stamps(ours)
            theirs.sendall(b"tick")
            _, ancillary, _, _ = ours.recvmsg(16, ANCILLARY_BYTES)
            stamp = read_stamp(ancillary)
    return stamp.kernel, stamp.waited_ns
