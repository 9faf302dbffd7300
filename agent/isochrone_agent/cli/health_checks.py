"""Health checks of the agent: a measured fact, and its verdict, sentence and hint. No check raises.

Source of `kernel_clock`: adjtimex(2). With `modes` 0 it changes nothing and needs no privilege.
"""

import asyncio
import ctypes
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import grpc.aio

from isochrone_agent.collector_client import CollectorClient, open_collector_channel
from isochrone_agent.errors import AgentError
from isochrone_agent.plan.policy import describe_refused, load_policy
from isochrone_agent.probe.socket_observer import ANCILLARY_BYTES, enable_receive_stamps, read_stamp
from isochrone_agent.settings import Settings
from isochrone_agent.spool.spool import Spool
from isochrone_common.cli.health_check import CheckResult, fail, ok, warn
from isochrone_common.credentials import format_fingerprint
from isochrone_common.local_socket import plain_text_refusal
from isochrone_wire.model import DAY_US, Plan
from isochrone_wire.operations import is_expiring

_MIB = 1 << 20
_LITTLE_BYTES = 512 * _MIB
_NOTHING_BYTES = 64 * _MIB
_NAMED = 3
_MAX_ERROR_US = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClock:
    """The kernel's view of its wall clock. `max_error_us` bounds the error while it is `synchronised`."""

    synchronised: bool
    max_error_us: int


def judge_disk(free_bytes: int, *, where: str) -> CheckResult:
    """Check that a spool at `where` has room to grow while the collector is unreachable."""
    sentence = f"{free_bytes / (1 << 30):.1f} GiB free at {where}"
    if free_bytes < _NOTHING_BYTES:
        return fail("disk", sentence, "free disk space: samples that cannot be written are lost")
    if free_bytes < _LITTLE_BYTES:
        return warn("disk", sentence, "free disk space, so that the spool can hold an outage of days")
    return ok("disk", sentence)


def judge_spool(problems: Sequence[str], *, waiting: int) -> CheckResult:
    """Check that the whole spool is readable. `problems` are sentences."""
    if problems:
        hint = "`isochrone-agent spool verify` lists all problems; the agent recovers what it can when it starts"
        return fail("samples", "; ".join(problems[:_NAMED]), hint)
    return ok("samples", f"{waiting} waiting, and everything in the spool is readable")


def judge_identity_file(mode: int, *, where: str) -> CheckResult:
    """Check that only its owner can read an identity file with these permission bits."""
    if mode & 0o077:
        return fail("identity", f"{where} is readable by other users (mode {mode:04o})", f"chmod 600 {where}")
    return ok("identity", f"{where} is readable by its owner only")


def judge_lifetime(sentence: str, renew_at: int | None, expires_at: int | None, *, now_at: int) -> CheckResult:
    """Check that the agent renews its credential in time; `sentence` describes the identity otherwise."""
    if expires_at is None:
        return ok("identity", sentence)
    if now_at >= expires_at:
        hint = "join again with a token of `isochrone-collector vantage rotate` or `vantage add`"
        return fail("identity", f"{sentence}; its credential has expired", hint)
    sentence += f"; its credential is valid for {(expires_at - now_at) // DAY_US} more days"
    if is_expiring(renew_at, expires_at, now_at):
        return warn("identity", sentence, "it should have been renewed: is the agent running? see identity.not_renewed")
    return ok("identity", sentence)


def judge_certificate(presented: bytes, pinned: Sequence[bytes]) -> CheckResult:
    """Check that the collector presents a pinned certificate, if any is pinned; all are SHA-256 of the DER form."""
    shown = format_fingerprint(presented)
    if not pinned:
        return ok("certificate", f"{shown}, verified by certificate authorities")
    if presented not in pinned:
        hint = "if it was replaced on purpose, join again; if not, the connection may be intercepted"
        return fail("certificate", f"the collector presents {shown}, not {format_fingerprint(pinned[0])}", hint)
    coming = f"; next {format_fingerprint(pinned[-1])}" if presented != pinned[-1] else ""
    return ok("certificate", f"{shown}, as pinned by this agent{coming}")


def check_kernel_clock() -> CheckResult:
    """Check that the kernel reports a synchronised wall clock."""
    return judge_clock(kernel_clock())


def judge_clock(kernel: KernelClock | None) -> CheckResult:
    """Check the state of the kernel's wall clock; `None` where it does not report it."""
    if kernel is None:
        return warn("clock", "this system does not report whether NTP synchronises it", "make sure that NTP is running")
    if not kernel.synchronised:
        hint = "start chrony or systemd-timesyncd; rounds of two vantages are paired by the clock"
        return warn("clock", "the kernel reports that it is not synchronised", hint)
    sentence = f"synchronised, at most {kernel.max_error_us / 1000:.0f} ms off"
    return (
        ok("clock", sentence)
        if kernel.max_error_us <= _MAX_ERROR_US
        else warn("clock", sentence, "check the NTP source")
    )


def judge_keys(missing: str, hint: str, present: Iterable[str]) -> CheckResult:
    """Check that the plan's targets have their keys. `missing` describes those without; no key is passed in."""
    if missing:
        return fail("keys", missing, f"{hint}; until then these targets are skipped_not_ready")
    names = ", ".join(sorted(set(present)))
    return ok("keys", names or "no target needs a key")


def judge_policy(name: str, refused: str, *, is_limited: bool, is_shared: bool) -> CheckResult:
    """`is_limited`: not the collector alone decides how much is sent. `is_shared`: others can change the file."""
    if is_shared:
        return fail("policy", f"{name} can be changed by other users", f"chmod go-w {name}")
    if refused:
        hint = "correct the plan, or allow them in the agent's policy; until then these targets are skipped_not_ready"
        return fail("policy", f"{name} refuses {refused}", hint)
    if not is_limited:
        hint = "limit the requests per day in policy.toml: see docs/agent.md, section Policy"
        return warn("policy", f"{name}, without a limit per day: the collector decides how much is sent", hint)
    return ok("policy", f"{name}, refuses no target of the plan")


def judge_names(unresolved: Mapping[str, str], resolved: Sequence[str]) -> CheckResult:
    """Check that the hosts of the plan's targets resolve. `unresolved` maps a host to the reason."""
    if unresolved:
        said = "; ".join(f"{host}: {why}" for host, why in sorted(unresolved.items()))
        return fail("names", said, "check the resolver, /etc/resolv.conf and the base_url in the plan")
    return ok("names", f"{', '.join(sorted(resolved)) or 'none'}")


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


def check_policy(settings: Settings, plan: Plan | None) -> CheckResult:
    """Check that the policy is valid, belongs to this agent only, and refuses no target of the plan."""
    try:
        policy = load_policy(settings)
    except AgentError as error:
        return fail("policy", str(error), error.hint)
    return judge_policy(
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
