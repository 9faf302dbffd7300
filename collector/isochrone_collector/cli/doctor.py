"""`isochrone-collector doctor`: is everything well that the collector stands on?"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from isochrone_collector.cli.options import reaching
from isochrone_collector.settings import data_dir_of
from isochrone_wire.health_check import CheckResult, Verdict, worst

SCHEMA = "isochrone.doctor/1"
_COLOUR_OF = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


@click.command()
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", help="PostgreSQL that `serve` uses, if not its own.")
@click.option(
    "--data-dir", envvar="ISOCHRONE_DATA_DIR", type=click.Path(path_type=Path), help="The data folder of `serve`."
)
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
@reaching
def doctor(
    database_url: str | None, data_dir: Path | None, output: str, collector: str | None, identity: Path | None
) -> None:
    """Look at everything a collector stands on.

    That is software, folder, disk, database, partitions, clock, health, plan, vantages and certificate; nothing is
    changed. Each check is ok, warn or fail, with what would help; the exit code is 1 when one of them fails.

    \b
    Example:
      isochrone-collector doctor
    """
    from isochrone_collector.cli import examining  # noqa: PLC0415  # half a second that no other command should wait

    folder = (data_dir or data_dir_of(os.environ)).absolute()
    results = list(
        examining.examine(database_url=database_url or None, data_dir=folder, collector=collector, identity=identity)
    )
    click.echo(_document(results) if output == "json" else _table(results))
    if worst(results) is Verdict.FAIL:
        sys.exit(1)


def _document(results: Sequence[CheckResult]) -> str:
    return json.dumps({"schema": SCHEMA, "findings": [asdict(finding) for finding in results]}, indent=2)


def _table(results: Sequence[CheckResult]) -> str:
    lines: list[str] = []
    for finding in results:
        verdict = click.style(f"{finding.verdict:4}", fg=_COLOUR_OF[finding.verdict])
        lines.append(f"{verdict}  {finding.check:12}  {finding.sentence}")
        lines += [f"{'':4}  {'':12}  → {finding.hint}"] if finding.hint else []
    return "\n".join(lines)
