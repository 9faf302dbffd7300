"""`doctor`: look at everything an agent stands on. Sends no request to a provider, shows no key, changes nothing that
stays.
"""

import asyncio
import hashlib
import os
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from pathlib import Path

from isochrone_agent.cli import health_checks, host_checks
from isochrone_agent.cli.kernel_clock import kernel_clock
from isochrone_agent.errors import AgentError
from isochrone_agent.plan.credentials import load_keyring
from isochrone_agent.plan.watcher import check_plan
from isochrone_agent.settings import Settings
from isochrone_agent.spool.inspection import inspect_spool, verify_spool
from isochrone_agent.url import DEFAULT_PORTS, parse_url
from isochrone_wire import __version__
from isochrone_wire.channel import presented_certificate
from isochrone_wire.health_check import CheckResult, Verdict, fail, ok, warn
from isochrone_wire.model import Plan, Target

_LIBRARIES = ("grpcio", "protobuf", "httpcore")
_RESOLVE_SECONDS = 5.0


async def examine(settings: Settings) -> AsyncIterator[CheckResult]:
    """Every finding, in the order in which things build on one another."""
    yield _software()
    for finding in _folder(settings):
        yield finding
    yield host_checks.check_receive_timestamps()
    yield _clock()
    yield _identity(settings)
    yield await asyncio.to_thread(_certificate, settings)
    collector, plan = await host_checks.check_collector(settings)
    yield collector
    if plan is None:
        yield warn("plan", "none is known, so keys and names cannot be looked at", "see collector")
        return
    yield _plan(settings, plan)
    yield _keys(settings, plan)
    yield await _names(settings, plan)


def _software() -> CheckResult:
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    python = ".".join(map(str, sys.version_info[:3]))
    return ok("software", f"isochrone {__version__}, Python {python}, {libraries}")


def _folder(settings: Settings) -> Iterator[CheckResult]:
    folder = settings.data_dir
    if not folder.is_dir():
        yield warn("data folder", f"{folder} is not there yet", "`run` and `join` make it; or say another --data-dir")
        return
    owner = folder.stat().st_uid
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "run this as the agent's user, or give the folder to it"
        yield fail("data folder", f"{folder} belongs to user {owner}, and we cannot write there", hint)
        return
    if owner != os.geteuid():
        hint = "run the agent as its user: files it makes now would belong to another"
        yield warn("data folder", f"{folder} belongs to user {owner}, and we are user {os.geteuid()}", hint)
    else:
        yield ok("data folder", f"{folder} is ours")
    yield health_checks.judge_disk(shutil.disk_usage(folder).free, where=str(folder))
    yield host_checks.check_spool(settings)
    yield from _samples(folder / "spool.sqlite3")


def _samples(spool: Path) -> Iterator[CheckResult]:
    """What waits, read as the agent would read it; before the first start there is nothing to read."""
    if not spool.exists():
        return
    try:
        yield health_checks.judge_spool(verify_spool(spool), waiting=inspect_spool(spool).stats.waiting)
    except AgentError as error:
        yield fail("samples", str(error), error.hint)


def _clock() -> CheckResult:
    kernel = kernel_clock()
    if kernel is None:
        return health_checks.judge_clock(None, max_error_us=0)
    return health_checks.judge_clock(kernel.synchronised, max_error_us=kernel.max_error_us)


def _identity(settings: Settings) -> CheckResult:
    if settings.identity is None:
        return ok("identity", "none, and none is needed to speak plain text on loopback")
    found = health_checks.judge_identity_file(
        settings.identity_path.stat().st_mode & 0o777, where=str(settings.identity_path)
    )
    if found.verdict is not Verdict.OK:
        return found
    return ok("identity", f"{settings.identity.name} in {settings.identity.region}; {found.sentence}")


def _certificate(settings: Settings) -> CheckResult:
    trust = settings.identity.trust if settings.identity else None
    if trust is None or not trust.tls:
        return ok("certificate", "plain text on loopback, so there is none")
    try:
        shown = presented_certificate(settings.collector)
    except OSError as error:
        return fail("certificate", f"{settings.collector} cannot be looked at: {error}", "is the collector running?")
    except ValueError as error:
        return fail("certificate", str(error), "is this the collector, or something before it?")
    pinned = hashlib.sha256(ssl.PEM_cert_to_DER_cert(trust.roots)).digest() if trust.roots else None
    return health_checks.judge_certificate(shown.fingerprint, pinned)


def _plan(settings: Settings, plan: Plan) -> CheckResult:
    try:
        check_plan(plan, load_keyring(settings.credentials))
    except AgentError as error:
        return fail("plan", str(error), error.hint)
    return ok("plan", f"{plan.version}, {len(plan.targets)} targets, all of which this agent can probe")


def _keys(settings: Settings, plan: Plan) -> CheckResult:
    """Every target's key is looked for, and only its name is told, and where it is."""
    missing: dict[str, str] = {}
    found: list[str] = []
    try:
        keyring = load_keyring(settings.credentials)
    except AgentError as error:
        return fail("keys", str(error), error.hint)
    for target in plan.targets:
        try:
            keyring.key_for(target)
        except AgentError as error:
            missing[target.name] = str(error)
        else:
            found += keyring.describe(target)
    return health_checks.judge_keys(missing, found)


async def _names(settings: Settings, plan: Plan) -> CheckResult:
    """Each host is looked up as a probe would look it up, and no connection is made."""
    hosts: set[tuple[str, int]] = set()
    unresolved: dict[str, str] = {}
    for target in plan.targets:
        try:
            hosts.add(_host(target, settings))
        except ValueError as error:
            unresolved[target.name] = str(error)
    answers = await asyncio.gather(*(_why_unresolved(*host) for host in sorted(hosts)))
    unresolved |= {host: why for (host, _), why in zip(sorted(hosts), answers, strict=True) if why}
    return health_checks.judge_names(unresolved, [host for host, _ in sorted(hosts) if host not in unresolved])


def _host(target: Target, settings: Settings) -> tuple[str, int]:
    """Where a probe connects. Raises `ValueError` when the plan's address leads nowhere."""
    url = parse_url(target.base_url)
    place = url.host, url.port or DEFAULT_PORTS[url.scheme]
    return settings.dial_options.connect_to.get(place, place)


async def _why_unresolved(host: str, port: int) -> str:
    """Why a host has no address, or nothing."""
    lookup = asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    try:
        await asyncio.wait_for(lookup, _RESOLVE_SECONDS)
    except TimeoutError:
        return f"no answer in {_RESOLVE_SECONDS:.0f} s"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""
