"""`isochrone-agent doctor` and `check`: health checks of everything an agent depends on.

No check sends a request to a provider, prints a key or leaves a change behind.
"""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from isochrone_agent.cli import health_checks, options
from isochrone_agent.cli.health_checks import (
    check_clock,
    check_collector,
    check_policy,
    check_receive_timestamps,
    check_spool,
)
from isochrone_agent.clock import now_at
from isochrone_agent.errors import AgentError
from isochrone_agent.plan.budget import budget_of
from isochrone_agent.plan.credentials import describe_missing, load_keyring
from isochrone_agent.plan.plan_watcher import check_plan
from isochrone_agent.plan.policy import limit_violations, load_policy
from isochrone_agent.plan.schedule import ScheduledRound, next_rounds
from isochrone_agent.probe.destinations import DEFAULT_PORTS, parse_url
from isochrone_agent.settings import Settings, load_settings
from isochrone_agent.spool.inspection import inspect_spool, read_spend, verify_spool
from isochrone_common.cli.command_line import example, table_or_json
from isochrone_common.cli.health_check import CheckResult, Verdict, fail, ok, warn, worst
from isochrone_common.credentials import fingerprint_of
from isochrone_common.trust import presented_certificate
from isochrone_wire import __version__
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US, Plan, Target, day_of

SCHEMA = "isochrone.doctor/1"
_COLOUR_OF = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}
_LIBRARIES = ("grpcio", "protobuf", "httpcore")
_RESOLVE_SECONDS = 5.0


@click.command("doctor", epilog=example("isochrone-agent doctor --data-dir /var/lib/isochrone"))
@options.running
@table_or_json
def command(*, settings_file: Path | None, output: str, **values: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Check folder, disk, spool, clock, timestamps, identity, certificate, collector, plan, policy, keys and names.

    Takes the options of `run`, and works while `run` is running. Sends no request to a provider and prints no key. Each
    check is ok, warn or fail, with a hint; the exit code is 1 if any check fails.
    """
    results = asyncio.run(_run_checks(load_settings(settings_file, values)))
    if output == "json":
        document = {"schema": SCHEMA, "findings": [asdict(result) for result in results]}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        click.echo(_results_table(results))
    if worst(results) is Verdict.FAIL:
        sys.exit(1)


def _results_table(results: Sequence[CheckResult]) -> str:
    """Format one line per result, followed by its hint if it has one."""
    lines: list[str] = []
    for result in results:
        verdict = click.style(f"{result.verdict:4}", fg=_COLOUR_OF[result.verdict])
        lines.append(f"{verdict}  {result.check:18}  {result.sentence}")
        lines += [f"{'':4}  {'':18}  → {result.hint}"] if result.hint else []
    return "\n".join(lines)


async def _run_checks(settings: Settings) -> list[CheckResult]:
    """Return the result of every check; each check may rely on those before it."""
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    python = ".".join(map(str, sys.version_info[:3]))
    results = [ok("software", f"isochrone {__version__}, Python {python}, {libraries}"), *_folder(settings)]
    results += [health_checks.check_receive_timestamps(), health_checks.check_kernel_clock(), _identity(settings)]
    results.append(await asyncio.to_thread(_certificate, settings))
    collector, plan = await health_checks.check_collector(settings)
    results.append(collector)
    if plan is None:
        hint = "see the check `collector`"
        return [*results, warn("plan", "not available, so keys and names were not checked", hint)]
    results += [_plan(settings, plan), health_checks.check_policy(settings, plan), _keys(settings, plan)]
    return [*results, await _names(settings, plan)]


def _folder(settings: Settings) -> Iterator[CheckResult]:
    folder = settings.data_dir
    if not folder.is_dir():
        yield warn("data folder", f"{folder} does not exist yet", "`run` and `join` create it; or set --data-dir")
        return
    owner = folder.stat().st_uid
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "run this command as the agent's user, or change the folder's owner"
        yield fail("data folder", f"{folder} belongs to user {owner} and is not writable", hint)
        return
    if owner != os.geteuid():
        hint = "run the agent as the folder's owner: files it creates now would belong to another user"
        yield warn("data folder", f"{folder} belongs to user {owner}, and this is user {os.geteuid()}", hint)
    else:
        yield ok("data folder", f"{folder} belongs to this user")
    yield health_checks.judge_disk(shutil.disk_usage(folder).free, where=str(folder))
    yield health_checks.check_spool(settings)
    yield from _samples(folder / "spool.sqlite3")


def _samples(spool: Path) -> Iterator[CheckResult]:
    """Read the spool as the agent would; before the first start there is no spool."""
    if not spool.exists():
        return
    try:
        yield health_checks.judge_spool(verify_spool(spool), waiting=inspect_spool(spool).stats.waiting)
    except AgentError as error:
        yield fail("samples", str(error), error.hint)


def _identity(settings: Settings) -> CheckResult:
    if settings.identity is None:
        return ok("identity", "none, and a collector of this user or with --trust-loopback needs none")
    found = health_checks.judge_identity_file(
        settings.identity_path.stat().st_mode & 0o777, where=str(settings.identity_path)
    )
    if found.verdict is not Verdict.OK:
        return found
    identity = settings.identity
    sentence = f"{identity.name} in {identity.region}; {found.sentence}"
    return health_checks.judge_lifetime(sentence, identity.renew_at, identity.expires_at, now_at=now_at())


def _certificate(settings: Settings) -> CheckResult:
    trust = settings.identity.trust if settings.identity else None
    if trust is None or not trust.tls:
        return ok("certificate", "none, as the connection is plain text on this machine")
    try:
        shown = presented_certificate(settings.collector)
    except OSError as error:
        return fail("certificate", f"cannot connect to {settings.collector}: {error}", "is the collector running?")
    except ValueError as error:
        return fail("certificate", str(error), "check that this address is the collector's and not a proxy's")
    return health_checks.judge_certificate(shown.fingerprint, [fingerprint_of(pin) for pin in trust.pins])


def _plan(settings: Settings, plan: Plan) -> CheckResult:
    try:
        check_plan(plan, load_keyring(settings.credentials))
    except AgentError as error:
        return fail("plan", str(error), error.hint)
    return ok("plan", f"{plan.version}, {len(plan.targets)} targets, all of which this agent can probe")


def _keys(settings: Settings, plan: Plan) -> CheckResult:
    """Look up the key of every target; report only its name and source."""
    try:
        keyring = load_keyring(settings.credentials)
    except AgentError as error:
        return fail("keys", str(error), error.hint)
    missing = keyring.missing(plan.targets)
    found = [name for target in plan.targets for name in keyring.describe(target) if target.name not in missing]
    hint = next((error.hint for error in missing.values()), "")
    return health_checks.judge_keys(describe_missing(missing), hint, found)


async def _names(settings: Settings, plan: Plan) -> CheckResult:
    """Resolve the host of every target that may be probed as a probe would, without connecting."""
    hosts: set[tuple[str, int]] = set()
    unresolved: dict[str, str] = {}
    refused = set[str]()
    with suppress(AgentError):  # the check `policy` reports it
        refused = set(load_policy(settings).refusals(plan.targets))
    for target in plan.targets:
        if target.name in refused:
            continue
        try:
            hosts.add(_host(target, settings))
        except ValueError as error:
            unresolved[target.name] = str(error)
    answers = await asyncio.gather(*(_why_unresolved(*host) for host in sorted(hosts)))
    unresolved |= {host: why for (host, _), why in zip(sorted(hosts), answers, strict=True) if why}
    return health_checks.judge_names(unresolved, [host for host, _ in sorted(hosts) if host not in unresolved])


def _host(target: Target, settings: Settings) -> tuple[str, int]:
    """Return the host and port that a probe connects to. Raises `ValueError` if the base URL is not valid."""
    url = parse_url(target.base_url)
    place = url.host, url.port or DEFAULT_PORTS[url.scheme]
    return settings.dial_options.connect_to.get(place, place)


async def _why_unresolved(host: str, port: int) -> str:
    """Return why the host cannot be resolved, or an empty string."""
    lookup = asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    try:
        await asyncio.wait_for(lookup, _RESOLVE_SECONDS)
    except TimeoutError:
        return f"no answer in {_RESOLVE_SECONDS:.0f} s"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


CHECK_SCHEMA = "isochrone.check/2"
_ROUNDS = 5
_LIMITS = ("usd", "tokens", "requests")


@click.command(
    "check", epilog=example("isochrone-agent check --vantage sg-1 --region ap-southeast-1 --collector 127.0.0.1:4600")
)
@options.running
@table_or_json
def check_command(*, settings_file: Path | None, output: str, **values: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Check settings, credentials, policy, spool, clock, receive timestamps and collector; show the next five
    rounds, and today's spend with the budgets.

    Takes the options of `run`, sends no request to a provider and changes nothing.
    """
    settings = load_settings(settings_file, values)
    results, plan = asyncio.run(_run_quick_checks(settings))
    rounds, allowances = _next_rounds(plan, settings), _allowances(plan, settings)
    if output == "json":
        document = {
            "schema": CHECK_SCHEMA,
            "findings": [asdict(result) for result in results],
            "rounds": [_round_json(due) for due in rounds],
            "spend": allowances,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print_table(results, rounds, allowances)
    if worst(results) is Verdict.FAIL:
        raise SystemExit(1)


async def _run_quick_checks(settings: Settings) -> tuple[list[CheckResult], Plan | None]:
    collector, plan = await check_collector(settings)
    credentials = _check_credentials(settings, plan)
    policy = check_policy(settings, plan)
    return [check_receive_timestamps(), check_clock(), check_spool(settings), credentials, collector, policy], plan


def _check_credentials(settings: Settings, plan: Plan | None) -> CheckResult:
    try:
        keyring = load_keyring(settings.credentials)
        found = {f"{name} ({credential.source})" for name, credential in keyring.credentials.items()}
        if plan:
            check_plan(plan, keyring)
    except AgentError as error:
        return fail("credentials", str(error), error.hint)
    targets = plan.targets if plan else ()
    if missing := keyring.missing(targets):
        return fail("credentials", describe_missing(missing), next(iter(missing.values())).hint)
    for target in targets:
        found.update(keyring.describe(target))
    return ok("credentials", ", ".join(sorted(found)) or "none configured, none needed")


def _round_json(due: ScheduledRound) -> dict[str, Any]:
    return {
        "round_at": rfc3339(due.round_at),
        "begins_at": rfc3339(due.begins_at),
        "target": due.target.name,
        "paused": due.target.paused,
    }


def _next_rounds(plan: Plan | None, settings: Settings) -> list[ScheduledRound]:
    # A plan that would be refused has no next rounds.
    if plan is None or limit_violations(plan):
        return []
    name = settings.vantage.name
    return next_rounds(plan.targets, now_at=now_at(), vantage=name, count=_ROUNDS, routes=plan.routes)


def _allowances(plan: Plan | None, settings: Settings) -> list[dict[str, Any]]:
    """Return the spend and the budget of every provider that has either, with the field names of the wire format."""
    spent = {spend.provider: spend for spend in read_spend(settings.spool_path, day_of(now_at()))}
    budgets, vantage = (plan.budgets if plan else ()), settings.vantage.name
    held = {b.provider: budget_of(budgets, provider=b.provider, vantage=vantage) for b in budgets}
    return [
        {
            "provider": name,
            "spent": {limit: getattr(spent.get(name), limit, 0) for limit in _LIMITS},
            "per_day": {limit: getattr(held.get(name), f"{limit}_per_day", None) for limit in _LIMITS},
        }
        for name in sorted(spent.keys() | {name for name, budget in held.items() if budget})
    ]


def _print_table(
    results: Sequence[CheckResult], rounds: Sequence[ScheduledRound], allowances: Sequence[dict[str, Any]]
) -> None:
    click.echo(_results_table(results))
    if rounds:
        click.echo("\nnext rounds:")
    for due in rounds:
        name = due.target.name + (" (paused)" if due.target.paused else "")
        click.echo(f"  {rfc3339(due.begins_at)}  in {(due.begins_at - now_at()) / SECOND_US:6.1f} s  {name}")
    if allowances:
        click.echo("\nspent today (UTC), and the daily budget:")
    for allowance in allowances:
        amounts = (_amount(limit, allowance["spent"][limit], allowance["per_day"][limit]) for limit in _LIMITS)
        click.echo(f"  {allowance['provider']}: {', '.join(amounts)}")


def _amount(limit: str, spent: float, per_day: float | None) -> str:
    written, unit = (".4f", "USD") if limit == "usd" else ("d", limit)
    return f"{spent:{written}} {unit}" if per_day is None else f"{spent:{written}} of {per_day:{written}} {unit}"
