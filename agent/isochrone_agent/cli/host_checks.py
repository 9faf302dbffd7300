"""What this machine can do for an instrument: receive timestamps, a steady clock, a disk for the spool, a collector.

Every check is a sentence with a verdict; none raises.
"""

import asyncio
import socket
import sqlite3
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import grpc.aio

from isochrone_agent.delivery.reconnecting_channel import open_collector_channel
from isochrone_agent.delivery.uplink import CollectorClient
from isochrone_agent.errors import AgentError
from isochrone_agent.probe.receive_timestamps import ANCILLARY_BYTES, enable_receive_stamps, read_stamp
from isochrone_agent.settings import Settings
from isochrone_agent.spool.database import connect_read_only
from isochrone_agent.spool.spool import Spool
from isochrone_wire.health_check import CheckResult, fail, ok, warn
from isochrone_wire.model import Plan, Spend

_REACH_SECONDS = 5.0
_CLOCK_READS = 1000
# A hundredth of the millisecond that is promised.
_FINE_NS = 10_000


def check_receive_timestamps() -> CheckResult:
    """Whether the kernel stamps what arrives on a TCP socket of this machine."""
    try:
        kernel, waited_ns = _stamped_over_loopback()
    except OSError as error:
        return warn("receive timestamps", f"cannot be tried here: {error}", "let this user open sockets on loopback")
    if not kernel:
        sentence = "the kernel gives none; reads are stamped by the agent, and a busy machine then shows in the numbers"
        return warn("receive timestamps", sentence, "measure on Linux, and give the agent a machine of its own")
    sentence = f"from the kernel; a read just now was {waited_ns / 1000:.0f} µs behind its bytes"
    return ok("receive timestamps", sentence)


def check_clock() -> CheckResult:
    """How finely the monotonic clock can be read."""
    reads = [time.monotonic_ns() for _ in range(_CLOCK_READS)]
    steps = [after - before for before, after in pairwise(reads) if after > before]
    finest = min(steps, default=1_000_000_000)
    sentence = f"can be read every {finest / 1000:.2f} µs"
    if finest < _FINE_NS:
        return ok("monotonic clock", sentence)
    return warn("monotonic clock", sentence, "look at the machine's clock source; durations are no finer than that")


def check_spool(settings: Settings) -> CheckResult:
    """Whether the spool's folder takes an fsynced write, and how long one takes."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=settings.data_dir, prefix="check-") as scratch:
            started_ns = time.monotonic_ns()
            Spool(Path(scratch) / "spool.sqlite3").close()
            took_ms = (time.monotonic_ns() - started_ns) / 1e6
    except (OSError, AgentError) as error:
        hint = getattr(error, "hint", "") or "make the folder the agent user's own, with room on its disk"
        return fail("spool", str(error), hint)
    return ok("spool", f"{settings.data_dir} takes a new spool in {took_ms:.0f} ms")


def read_spend(settings: Settings, day_at: int) -> tuple[Spend, ...]:
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


async def check_collector(settings: Settings) -> tuple[CheckResult, Plan | None]:
    """Whether the collector answers, and the plan it has."""
    async with open_collector_channel(settings) as channel:
        try:
            async with asyncio.timeout(_REACH_SECONDS):
                plan = await CollectorClient(channel=lambda: channel, vantage=settings.vantage).fetch_plan(None)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no answer in 5 s"
            hint = "look at the address, the way there, and whether `isochrone-collector serve` runs"
            return fail("collector", f"{settings.collector} does not answer: {why}", hint), None
    if plan is None or not plan.version:
        hint = "isochrone-collector apply plan.yaml"
        return warn("collector", f"{settings.collector} answers, and has no plan yet", hint), None
    return ok("collector", f"{settings.collector} answers with plan {plan.version}, {len(plan.targets)} targets"), plan


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
