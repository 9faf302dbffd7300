"""`isochrone-agent check`: checks that `run` would work with these options, and how well this machine can measure."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from isochrone_agent.cli import options
from isochrone_agent.cli.doctor import results_table
from isochrone_agent.cli.host_checks import (
    check_clock,
    check_collector,
    check_policy,
    check_receive_timestamps,
    check_spool,
    read_spend,
)
from isochrone_agent.clock import now_at
from isochrone_agent.errors import AgentError
from isochrone_agent.plan.budget import budget_of
from isochrone_agent.plan.credentials import describe_missing, load_keyring
from isochrone_agent.plan.limits import limit_violations
from isochrone_agent.plan.schedule import Due, next_rounds
from isochrone_agent.plan.watcher import check_plan
from isochrone_agent.settings import Settings, load_settings
from isochrone_common.cli.command_line import example, table_or_json
from isochrone_common.cli.health_check import CheckResult, Verdict, fail, ok, worst
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US, Plan, day_of

SCHEMA = "isochrone.check/2"
_ROUNDS = 5
_LIMITS = ("usd", "tokens", "requests")


@click.command(
    "check", epilog=example("isochrone-agent check --vantage sg-1 --region ap-southeast-1 --collector 127.0.0.1:4600")
)
@options.running
@table_or_json
def command(*, settings_file: Path | None, output: str, **values: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Check settings, credentials, policy, spool, clock, receive timestamps and collector; show the next five
    rounds, and today's spend with the budgets.

    Takes the options of `run`, sends no request to a provider and changes nothing.
    """
    settings = load_settings(settings_file, values)
    results, plan = asyncio.run(_run_checks(settings))
    rounds, allowances = _next_rounds(plan, settings), _allowances(plan, settings)
    if output == "json":
        document = {
            "schema": SCHEMA,
            "findings": [asdict(result) for result in results],
            "rounds": [_round_json(due) for due in rounds],
            "spend": allowances,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print_table(results, rounds, allowances)
    if worst(results) is Verdict.FAIL:
        raise SystemExit(1)


async def _run_checks(settings: Settings) -> tuple[list[CheckResult], Plan | None]:
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


def _round_json(due: Due) -> dict[str, Any]:
    return {
        "round_at": rfc3339(due.round_at),
        "begins_at": rfc3339(due.begins_at),
        "target": due.target.name,
        "paused": due.target.paused,
    }


def _next_rounds(plan: Plan | None, settings: Settings) -> list[Due]:
    # A plan that would be refused has no next rounds.
    if plan is None or limit_violations(plan):
        return []
    name = settings.vantage.name
    return next_rounds(plan.targets, now_at=now_at(), vantage=name, count=_ROUNDS, routes=plan.routes)


def _allowances(plan: Plan | None, settings: Settings) -> list[dict[str, Any]]:
    """Return the spend and the budget of every provider that has either, with the field names of the wire format."""
    spent = {spend.provider: spend for spend in read_spend(settings, day_of(now_at()))}
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


def _print_table(results: Sequence[CheckResult], rounds: Sequence[Due], allowances: Sequence[dict[str, Any]]) -> None:
    click.echo(results_table(results))
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
