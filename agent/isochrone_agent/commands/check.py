"""`isochrone-agent check`: would `run` with these options work here, and how well can this machine measure?"""

import asyncio
import heapq
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from isochrone_agent.clock import now_at
from isochrone_agent.commands import options
from isochrone_agent.credentials import load_keyring
from isochrone_agent.errors import AgentError
from isochrone_agent.follower import check_plan
from isochrone_agent.selfcheck import Finding, check_clock, check_collector, check_spool, check_stamps
from isochrone_agent.settings import Settings, gather_settings
from isochrone_wire.model import SECOND_US, Plan
from isochrone_wire.plain import rfc3339
from isochrone_wire.rounds import next_round_at

SCHEMA = "isochrone.check/1"
_ROUNDS = 5


@click.command("check")
@options.running
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(*, settings_file: Path | None, output: str, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Check settings, credentials, spool, clock, receive timestamps and collector; show the next five rounds.

    Takes the options of `run`, sends no request to a provider and changes nothing.

    \b
    Example:
      isochrone-agent check --vantage sg-1 --region ap-southeast-1 --collector 127.0.0.1:4600
    """
    settings = gather_settings(settings_file, told)
    findings, plan = asyncio.run(_findings(settings))
    rounds = _next_rounds(plan) if plan else []
    if output == "json":
        coming = [{"round_at": rfc3339(at), "target": name} for at, name in rounds]
        document = {"schema": SCHEMA, "findings": [asdict(finding) for finding in findings], "rounds": coming}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _show(findings, rounds)
    if any(finding.verdict == "fail" for finding in findings):
        raise SystemExit(1)


async def _findings(settings: Settings) -> tuple[list[Finding], Plan | None]:
    collector, plan = await check_collector(settings)
    credentials = _check_credentials(settings, plan)
    return [check_stamps(), check_clock(), check_spool(settings), credentials, collector], plan


def _check_credentials(settings: Settings, plan: Plan | None) -> Finding:
    try:
        keyring = load_keyring(settings.credentials)
        if plan:
            check_plan(plan, keyring)
        for target in plan.targets if plan else ():
            keyring.key_for(target)
    except AgentError as error:
        return Finding(subject="credentials", verdict="fail", sentence=f"{error} ({error.hint})")
    known = ", ".join(sorted(keyring.credentials)) or "none kept, none needed"
    return Finding(subject="credentials", verdict="ok", sentence=known)


def _next_rounds(plan: Plan) -> list[tuple[int, str]]:
    at = now_at()
    coming = [(next_round_at(at, target_id=t.id, every_us=t.every_us), t.every_us, t.name) for t in plan.targets]
    heapq.heapify(coming)
    rounds: list[tuple[int, str]] = []
    while coming and len(rounds) < _ROUNDS:
        round_at, every_us, name = coming[0]
        rounds.append((round_at, name))
        heapq.heapreplace(coming, (round_at + every_us, every_us, name))
    return rounds


def _show(findings: Sequence[Finding], rounds: Sequence[tuple[int, str]]) -> None:
    for finding in findings:
        click.echo(f"{finding.verdict:4}  {finding.subject:18}  {finding.sentence}")
    if rounds:
        click.echo("\nnext rounds:")
    for round_at, name in rounds:
        click.echo(f"  {rfc3339(round_at)}  in {(round_at - now_at()) / SECOND_US:6.1f} s  {name}")
