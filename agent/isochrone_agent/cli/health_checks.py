"""Health checks of everything an agent depends on. No check raises, sends a request to a provider, prints a key or
leaves a change behind.

Source of `kernel_clock`: adjtimex(2). With `modes` 0 it changes nothing and needs no privilege.
"""

import asyncio
import ctypes
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import grpc.aio

from isochrone_agent.clock import now_at
from isochrone_agent.collector_client import CollectorClient, open_collector_channel
from isochrone_agent.errors import AgentError
from isochrone_agent.plan.credentials import describe_missing, load_keyring
from isochrone_agent.plan.plan_watcher import check_plan, read_plan
from isochrone_agent.plan.policy import describe_refused, load_policy
from isochrone_agent.probe.destinations import DEFAULT_PORTS, parse_url
from isochrone_agent.settings import Settings
from isochrone_agent.spool.inspection import inspect_spool, verify_spool
from isochrone_agent.spool.spool import Spool
from isochrone_common.cli.health_check import CheckResult, fail, ok, warn
from isochrone_common.credentials import fingerprint_of, format_fingerprint
from isochrone_common.local_socket import plain_text_refusal
from isochrone_common.receive_stamps import ANCILLARY_BYTES, enable_receive_stamps, read_stamp
from isochrone_common.trust import presented_certificate
from isochrone_wire.model import DAY_US, Plan, Target
from isochrone_wire.operations import is_expiring

_LITTLE_BYTES = 512 << 20
_NOTHING_BYTES = 64 << 20
_NAMED = 3
_MAX_ERROR_US = 100_000
_ANSWER_SECONDS = 5.0
_CLOCK_READS = 1000
# A hundredth of the promised millisecond.
_FINE_NS = 10_000
_TIME_ERROR = 5
_STA_UNSYNC = 0x40
# The C structure is 208 bytes on 64-bit Linux; the fields after the status are not used.
_REST_BYTES = 208


def check_folder(settings: Settings) -> Iterator[CheckResult]:
    """Check the data folder, its disk, and that a spool can be created there; read the spool of the agent."""
    folder, user = settings.data_dir, os.geteuid()
    if not folder.is_dir():
        yield warn("data folder", f"{folder} does not exist yet", "`run` and `join` create it; or set --data-dir")
        return
    owner = folder.stat().st_uid
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "run this command as the agent's user, or change the folder's owner"
        yield fail("data folder", f"{folder} belongs to user {owner} and is not writable", hint)
        return
    if owner != user:
        hint = "run the agent as the folder's owner: files it creates now would belong to another user"
        yield warn("data folder", f"{folder} belongs to user {owner}, and this is user {user}", hint)
    else:
        yield ok("data folder", f"{folder} belongs to this user")
    yield judge_disk(shutil.disk_usage(folder).free, where=str(folder))
    yield check_spool(settings)
    if settings.spool_path.exists():
        yield _check_samples(settings.spool_path)


def judge_disk(free_bytes: int, *, where: str) -> CheckResult:
    """Check that a spool at `where` has room to grow while the collector is unreachable."""
    sentence = f"{free_bytes / (1 << 30):.1f} GiB free at {where}"
    if free_bytes < _NOTHING_BYTES:
        return fail("disk", sentence, "free disk space: samples that cannot be written are lost")
    if free_bytes < _LITTLE_BYTES:
        return warn("disk", sentence, "free disk space, so that the spool can hold an outage of days")
    return ok("disk", sentence)


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


def _check_samples(spool: Path) -> CheckResult:
    try:
        problems, waiting = verify_spool(spool), inspect_spool(spool).depth.waiting
    except AgentError as error:
        return fail("samples", str(error), error.hint)
    if problems:
        hint = "`isochrone-agent spool verify` lists all problems; the agent recovers what it can when it starts"
        return fail("samples", "; ".join(problems[:_NAMED]), hint)
    return ok("samples", f"{waiting} waiting, and everything in the spool is readable")


def check_identity(settings: Settings) -> CheckResult:
    """Check that only its owner can read the identity file, and that its credential is renewed in time."""
    identity, path = settings.identity, settings.identity_path
    if identity is None:
        return ok("identity", "none, and a collector of this user or with --trust-loopback needs none")
    if (mode := path.stat().st_mode & 0o777) & 0o077:
        return fail("identity", f"{path} is readable by other users (mode {mode:04o})", f"chmod 600 {path}")
    sentence = f"{identity.name} in {identity.region}; {path} is readable by its owner only"
    return judge_lifetime(sentence, identity.renew_at, identity.expires_at, now_at=now_at())


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


def check_certificate(settings: Settings) -> CheckResult:
    """Check that the collector presents a pinned certificate, if any is pinned."""
    trust = settings.identity.trust if settings.identity else None
    if trust is None or not trust.tls:
        return ok("certificate", "none, as the connection is plain text on this machine")
    try:
        shown = presented_certificate(settings.collector)
    except OSError as error:
        return fail("certificate", f"cannot connect to {settings.collector}: {error}", "is the collector running?")
    except ValueError as error:
        return fail("certificate", str(error), "check that this address is the collector's and not a proxy's")
    return judge_certificate(shown.fingerprint, [fingerprint_of(pin) for pin in trust.pins])


def judge_certificate(presented: bytes, pinned: Sequence[bytes]) -> CheckResult:
    """Compare the certificate presented with those pinned; all are SHA-256 of the DER form."""
    shown = format_fingerprint(presented)
    if not pinned:
        return ok("certificate", f"{shown}, verified by certificate authorities")
    if presented not in pinned:
        hint = "if it was replaced on purpose, join again; if not, the connection may be intercepted"
        return fail("certificate", f"the collector presents {shown}, not {format_fingerprint(pinned[0])}", hint)
    coming = f"; next {format_fingerprint(pinned[-1])}" if presented != pinned[-1] else ""
    return ok("certificate", f"{shown}, as pinned by this agent{coming}")


def check_receive_timestamps() -> CheckResult:
    """Check that the kernel timestamps the data received on a TCP socket."""
    loopback = ("127.0.0.1", 0)
    try:
        with socket.create_server(loopback) as listener, socket.create_connection(listener.getsockname()) as ours:
            theirs, _ = listener.accept()
            with theirs:
                ours.settimeout(_ANSWER_SECONDS)
                enable_receive_stamps(ours)
                theirs.sendall(b"tick")
                _, ancillary, _, _ = ours.recvmsg(16, ANCILLARY_BYTES)
                stamp = read_stamp(ancillary)
    except OSError as error:
        return warn("receive timestamps", f"cannot be tested: {error}", "allow this user to open sockets on loopback")
    if not stamp.kernel:
        sentence = "not supported by the kernel; the agent timestamps reads itself, so a busy machine adds latency"
        return warn("receive timestamps", sentence, "run the agent on Linux, on a machine without other load")
    sentence = f"from the kernel; a test read came {stamp.waited_ns / 1000:.0f} µs after its bytes"
    return ok("receive timestamps", sentence)


def check_clock() -> CheckResult:
    """Check the resolution of the monotonic clock."""
    reads = [time.monotonic_ns() for _ in range(_CLOCK_READS)]
    finest = min((after - before for before, after in pairwise(reads) if after > before), default=1_000_000_000)
    sentence = f"resolution {finest / 1000:.2f} µs"
    if finest < _FINE_NS:
        return ok("monotonic clock", sentence)
    return warn("monotonic clock", sentence, "check the clock source of this machine; durations have this resolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClock:
    """The kernel's view of its wall clock. `max_error_us` bounds the error while it is `synchronised`."""

    synchronised: bool
    max_error_us: int


def judge_clock(kernel: KernelClock | None) -> CheckResult:
    """Check the state of the kernel's wall clock; `None` where it does not report it."""
    if kernel is None:
        return warn("clock", "this system does not report whether NTP synchronises it", "make sure that NTP is running")
    if not kernel.synchronised:
        hint = "start chrony or systemd-timesyncd; rounds of two vantages are paired by the clock"
        return warn("clock", "the kernel reports that it is not synchronised", hint)
    sentence = f"synchronised, at most {kernel.max_error_us / 1000:.0f} ms off"
    if kernel.max_error_us > _MAX_ERROR_US:
        return warn("clock", sentence, "check the NTP source")
    return ok("clock", sentence)


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


async def check_plan_source(settings: Settings) -> tuple[CheckResult, Plan | None]:
    """Check that the collector answers or, for an agent without one, that the plan file is valid; return the plan."""
    if settings.plan is not None:
        try:
            own = read_plan(settings.plan, 1)
        except AgentError as error:
            return fail("plan file", str(error), error.hint), None
        return ok("plan file", f"{settings.plan}, {len(own.targets)} targets; no collector is used"), own
    async with open_collector_channel(settings.collector, settings.identity) as channel:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
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


def check_runnable(settings: Settings, plan: Plan) -> CheckResult:
    """Check that this agent can run the plan."""
    try:
        check_plan(plan, load_keyring(settings.credentials))
    except AgentError as error:
        return fail("plan", str(error), error.hint)
    return ok("plan", f"{plan.version}, {len(plan.targets)} targets, all of which this agent can probe")


def check_policy(settings: Settings, plan: Plan | None) -> CheckResult:
    """Check that the policy is valid, belongs to this agent only, and refuses no target of the plan."""
    try:
        policy = load_policy(settings)
    except AgentError as error:
        return fail("policy", str(error), error.hint)
    if policy.path and policy.path.stat().st_mode & 0o022:
        return fail("policy", f"{policy} can be changed by other users", f"chmod go-w {policy}")
    if refused := describe_refused(policy.refusals(plan.targets if plan else ())):
        hint = "correct the plan, or allow them in the agent's policy; until then these targets are skipped_not_ready"
        return fail("policy", f"{policy} refuses {refused}", hint)
    # A user who controls a collector on this machine could send such requests without the agent.
    if not (policy.limits_volume or settings.collector.is_loopback):
        hint = "limit the requests per day in policy.toml: see docs/agent.md, section Policy"
        return warn("policy", f"{policy}, without a limit per day: the collector decides how much is sent", hint)
    return ok("policy", f"{policy}, refuses no target of the plan")


def check_keys(settings: Settings, plan: Plan) -> CheckResult:
    """Look up the key of every target; report only its name and source."""
    try:
        keyring = load_keyring(settings.credentials)
    except AgentError as error:
        return fail("keys", str(error), error.hint)
    if missing := keyring.missing(plan.targets):
        hint = f"{next(iter(missing.values())).hint}; until then these targets are skipped_not_ready"
        return fail("keys", describe_missing(missing), hint)
    names = {name for target in plan.targets for name in keyring.describe(target)}
    return ok("keys", ", ".join(sorted(names)) or "no target needs a key")


def check_credentials(settings: Settings, plan: Plan | None) -> CheckResult:
    """Check the credentials file, and the plan with it; report the names and sources of all keys."""
    targets = plan.targets if plan else ()
    try:
        keyring = load_keyring(settings.credentials)
        if plan:
            check_plan(plan, keyring)
    except AgentError as error:
        return fail("credentials", str(error), error.hint)
    if missing := keyring.missing(targets):
        return fail("credentials", describe_missing(missing), next(iter(missing.values())).hint)
    found = {f"{name} ({credential.source})" for name, credential in keyring.credentials.items()}
    found |= {name for target in targets for name in keyring.describe(target)}
    return ok("credentials", ", ".join(sorted(found)) or "none configured, none needed")


async def check_names(settings: Settings, plan: Plan) -> CheckResult:
    """Resolve the host of every target that may be probed as a probe would, without connecting."""
    hosts = set[tuple[str, int]]()
    unresolved: dict[str, str] = {}
    refused = set[str]()
    with suppress(AgentError):  # the check `policy` reports it
        refused = set(load_policy(settings).refusals(plan.targets))
    for target in plan.targets:
        if target.name not in refused:
            try:
                hosts.add(_host(target, settings))
            except ValueError as error:
                unresolved[target.name] = str(error)
    answers = await asyncio.gather(*(_why_unresolved(*host) for host in sorted(hosts)))
    unresolved |= {host: why for (host, _), why in zip(sorted(hosts), answers, strict=True) if why}
    if unresolved:
        sentence = "; ".join(f"{host}: {why}" for host, why in sorted(unresolved.items()))
        return fail("names", sentence, "check the resolver, /etc/resolv.conf and the base_url in the plan")
    return ok("names", ", ".join(host for host, _ in sorted(hosts)) or "none")


def _host(target: Target, settings: Settings) -> tuple[str, int]:
    """Return the host and port that a probe connects to. Raises `ValueError` if the base URL is not valid."""
    url = parse_url(target.base_url)
    place = url.host, url.port or DEFAULT_PORTS[url.scheme]
    return settings.dial_options.connect_to.get(place, place)


async def _why_unresolved(host: str, port: int) -> str:
    lookup = asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    try:
        await asyncio.wait_for(lookup, _ANSWER_SECONDS)
    except TimeoutError:
        return f"no answer in {_ANSWER_SECONDS:.0f} s"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""
