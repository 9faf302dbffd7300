"""Health checks of the host: receive timestamps, clocks, disk and the collector. No check raises.

Source of `kernel_clock`: adjtimex(2). With `modes` 0 it changes nothing and needs no privilege.
"""

import asyncio
import ctypes
import socket
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import grpc.aio

from isochrone_agent.cli import health_checks
from isochrone_agent.delivery.reconnecting_channel import open_collector_channel
from isochrone_agent.delivery.uplink import CollectorClient
from isochrone_agent.errors import AgentError
from isochrone_agent.plan.policy import describe_refused, load_policy
from isochrone_agent.probe.receive_timestamps import ANCILLARY_BYTES, enable_receive_stamps, read_stamp
from isochrone_agent.settings import Settings
from isochrone_agent.spool.database import connect_read_only
from isochrone_agent.spool.spool import Spool
from isochrone_common.cli.health_check import CheckResult, fail, ok, warn
from isochrone_common.local_socket import plain_text_refusal
from isochrone_wire.model import Plan, Spend

_REACH_SECONDS = 5.0
_CLOCK_READS = 1000
# A hundredth of the promised millisecond.
_FINE_NS = 10_000
_TIME_ERROR = 5
_STA_UNSYNC = 0x40
# The C structure is 208 bytes on 64-bit Linux; the fields after the status are not used.
_REST_BYTES = 208


def check_receive_timestamps() -> CheckResult:
    """Check that the kernel timestamps the data received on a TCP socket."""
    try:
        kernel, waited_ns = _stamped_over_loopback()
    except OSError as error:
        return warn("receive timestamps", f"cannot be tested: {error}", "allow this user to open sockets on loopback")
    if not kernel:
        sentence = "not supported by the kernel; the agent timestamps reads itself, so a busy machine adds latency"
        return warn("receive timestamps", sentence, "run the agent on Linux, on a machine without other load")
    sentence = f"from the kernel; a test read came {waited_ns / 1000:.0f} µs after its bytes"
    return ok("receive timestamps", sentence)


def check_clock() -> CheckResult:
    """Check the resolution of the monotonic clock."""
    reads = [time.monotonic_ns() for _ in range(_CLOCK_READS)]
    steps = [after - before for before, after in pairwise(reads) if after > before]
    finest = min(steps, default=1_000_000_000)
    sentence = f"resolution {finest / 1000:.2f} µs"
    if finest < _FINE_NS:
        return ok("monotonic clock", sentence)
    return warn("monotonic clock", sentence, "check the clock source of this machine; durations have this resolution")


def check_spool(settings: Settings) -> CheckResult:
    """Check that a spool can be created in the data folder, and time it."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=settings.data_dir, prefix="check-") as scratch:
            started_ns = time.monotonic_ns()
            Spool(Path(scratch) / "spool.sqlite3").close()
            took_ms = (time.monotonic_ns() - started_ns) / 1e6
    except (OSError, AgentError) as error:
        hint = getattr(error, "hint", "") or "the agent's user must own the folder, and its disk must have space"
        return fail("spool", str(error), hint)
    return ok("spool", f"created a test spool in {settings.data_dir} in {took_ms:.0f} ms")


def read_spend(settings: Settings, day_at: int) -> tuple[Spend, ...]:
    """Read the spend of the day (UTC) that began at `day_at` from the spool; empty if the spool cannot be read."""
    query = "select provider, day_at, usd, tokens, requests from spend where day_at = ? order by provider"
    try:
        # Read-only, because an agent may be using it.
        with closing(connect_read_only(settings.data_dir / "spool.sqlite3")) as db:
            rows = db.execute(query, (day_at,)).fetchall()
    except sqlite3.Error:
        return ()
    return tuple(
        Spend(provider=name, day_at=day, usd=usd, tokens=tokens, requests=requests)
        for name, day, usd, tokens, requests in rows
    )


def check_policy(settings: Settings, plan: Plan | None) -> CheckResult:
    """Check that the policy is valid, belongs to this agent only, and refuses no target of the plan."""
    try:
        policy = load_policy(settings)
    except AgentError as error:
        return fail("policy", str(error), error.hint)
    return health_checks.judge_policy(
        str(policy),
        describe_refused(policy.refusals(plan.targets if plan else ())),
        # Whoever controls a collector on this machine could send such requests without the agent.
        is_limited=policy.limits_volume or settings.collector.is_loopback,
        is_shared=bool(policy.path and policy.path.stat().st_mode & 0o022),
    )


async def check_collector(settings: Settings) -> tuple[CheckResult, Plan | None]:
    """Check that the collector answers, and return its plan."""
    async with open_collector_channel(settings) as channel:
        try:
            async with asyncio.timeout(_REACH_SECONDS):
                plan = await CollectorClient(channel=lambda: channel, vantage=settings.vantage).fetch_plan(None)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no answer in 5 s"
            if settings.identity is None and (refusal := plain_text_refusal(settings.collector)):
                return fail("collector", *refusal), None
            hint = "check the address, the network, and that `isochrone-collector serve` is running"
            return fail("collector", f"{settings.collector} does not answer: {why}", hint), None
    if plan is None or not plan.version:
        hint = "isochrone-collector apply plan.yaml"
        return warn("collector", f"{settings.collector} answers, but has no plan yet", hint), None
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


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * _REST_BYTES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClock:
    """The kernel's view of its wall clock. `max_error_us` bounds the error while it is `synchronised`."""

    synchronised: bool
    max_error_us: int


def kernel_clock() -> KernelClock | None:
    """Read the state of the kernel's wall clock; `None` on systems other than Linux, or on an error."""
    if sys.platform != "linux":
        return None
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    synchronised = state != _TIME_ERROR and not timex.status & _STA_UNSYNC
    return KernelClock(synchronised=synchronised, max_error_us=timex.maxerror)
