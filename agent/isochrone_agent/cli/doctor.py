import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from isochrone_agent.cli import health_checks, options
from isochrone_agent.clock import now_at
from isochrone_agent.plan.budget import budget_of
from isochrone_agent.plan.policy import limit_violations
from isochrone_agent.plan.schedule import ScheduledRound, next_rounds
from isochrone_agent.settings import Settings, load_settings
from isochrone_agent.spool.inspection import read_spend
from isochrone_common.cli.command_line import example, print_json, table_or_json
from isochrone_common.cli.health_check import CheckResult, Verdict, ok, warn, worst
from isochrone_wire import __version__
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US, Plan, day_of
from isochrone_wire.text import printable

SCHEMA = "isochrone.doctor/1"
CHECK_SCHEMA = "isochrone.check/2"
_COLOUR_OF = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}
_LIBRARIES = ("grpcio", "protobuf", "httpcore")
_ROUNDS = 5
_LIMITS = ("usd", "tokens", "requests")


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
        print_json({"schema": SCHEMA, "findings": [asdict(result) for result in results]})
    else:
        _print_results(results)
    if worst(results) is Verdict.FAIL:
        raise SystemExit(1)


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
    source, plan = asyncio.run(health_checks.check_plan_source(settings))
    results = [
        health_checks.check_receive_timestamps(),
        health_checks.check_clock(),
        health_checks.check_spool(settings),
        health_checks.check_credentials(settings, plan),
        source,
        health_checks.check_policy(settings, plan),
    ]
    # A plan that would be refused has no next rounds.
    planned = plan if plan and not limit_violations(plan) else Plan(version=0, baseline="")
    now, name, routes = now_at(), settings.vantage.name, planned.routes
    rounds = next_rounds(planned.targets, now_at=now, vantage=name, count=_ROUNDS, routes=routes)
    allowances = _allowances(plan, settings)
    if output == "json":
        document = [
            {
                "round_at": rfc3339(due.round_at),
                "begins_at": rfc3339(due.begins_at),
                "target": due.target.name,
                "paused": due.target.paused,
            }
            for due in rounds
        ]
        findings = [asdict(result) for result in results]
        print_json({"schema": CHECK_SCHEMA, "findings": findings, "rounds": document, "spend": allowances})
    else:
        _print_results(results)
        _print_rounds(rounds)
        _print_spend(allowances)
    if worst(results) is Verdict.FAIL:
        raise SystemExit(1)


async def _run_checks(settings: Settings) -> list[CheckResult]:
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    python = ".".join(map(str, sys.version_info[:3]))
    source, plan = await health_checks.check_plan_source(settings)
    joined = []
    if settings.plan is None:
        certificate = await asyncio.to_thread(health_checks.check_certificate, settings)
        joined = [health_checks.check_identity(settings), certificate]
    results = [
        ok("software", f"isochrone {__version__}, Python {python}, {libraries}"),
        *health_checks.check_folder(settings),
        health_checks.check_receive_timestamps(),
        health_checks.judge_clock(health_checks.kernel_clock()),
        *joined,
        source,
    ]
    if plan is None:
        hint = f"see the check `{source.check}`"
        return [*results, warn("plan", "not available, so keys and names were not checked", hint)]
    checks = (health_checks.check_runnable, health_checks.check_policy, health_checks.check_keys)
    return [*results, *(check(settings, plan) for check in checks), await health_checks.check_names(settings, plan)]


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


def _print_results(results: Sequence[CheckResult]) -> None:
    for result in results:
        verdict = click.style(f"{result.verdict:4}", fg=_COLOUR_OF[result.verdict])
        click.echo(f"{verdict}  {result.check:18}  {printable(result.sentence)}")
        if result.hint:
            click.echo(f"{'':4}  {'':18}  → {result.hint}")


def _print_rounds(rounds: Sequence[ScheduledRound]) -> None:
    if rounds:
        click.echo("\nnext rounds:")
    for due in rounds:
        name = due.target.name + (" (paused)" if due.target.paused else "")
        click.echo(f"  {rfc3339(due.begins_at)}  in {(due.begins_at - now_at()) / SECOND_US:6.1f} s  {name}")


def _print_spend(allowances: Sequence[dict[str, Any]]) -> None:
    if allowances:
        click.echo("\nspent today (UTC), and the daily budget:")
    for allowance in allowances:
        amounts = []
        for limit in _LIMITS:
            written, unit = (".4f", "USD") if limit == "usd" else ("d", limit)
            spent, per_day = allowance["spent"][limit], allowance["per_day"][limit]
            amounts.append(f"{spent:{written}}{'' if per_day is None else f' of {per_day:{written}}'} {unit}")
        click.echo(f"  {allowance['provider']}: {', '.join(amounts)}")
