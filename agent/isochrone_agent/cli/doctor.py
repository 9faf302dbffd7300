"""`isochrone-agent doctor`: is everything well that the agent stands on?"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from isochrone_agent.cli import options
from isochrone_agent.cli.examination import examine
from isochrone_agent.cli.results import as_table
from isochrone_agent.settings import load_settings
from isochrone_wire.cli.command_line import table_or_json
from isochrone_wire.health_check import CheckResult, Verdict, worst

SCHEMA = "isochrone.doctor/1"


@click.command("doctor")
@options.running
@table_or_json
def command(*, settings_file: Path | None, output: str, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Look at folder, disk, spool, clock, timestamps, identity, certificate, collector, plan, keys and names.

    Takes the options of `run`, and can be asked while it runs. Sends no request to a provider and shows no key. Each
    check is ok, warn or fail, with what would help; the exit code is 1 when one of them fails.

    \b
    Example:
      isochrone-agent doctor --data-dir /var/lib/isochrone
    """
    results = asyncio.run(_all(settings_file, told))
    click.echo(_document(results) if output == "json" else as_table(results))
    if worst(results) is Verdict.FAIL:
        sys.exit(1)


async def _all(settings_file: Path | None, told: dict[str, Any]) -> list[CheckResult]:
    return [finding async for finding in examine(load_settings(settings_file, told))]


def _document(results: Sequence[CheckResult]) -> str:
    document = {"schema": SCHEMA, "findings": [asdict(finding) for finding in results]}
    return json.dumps(document, indent=2, ensure_ascii=False)
