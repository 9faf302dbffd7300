"""`isochrone-collector apply`: a plan file into force."""

from functools import partial
from pathlib import Path
from typing import IO

import click

from isochrone_collector.cli.options import reaching
from isochrone_collector.cli.plan_change import change_plan, output_option, whoever
from isochrone_collector.cli.plan_client import Asking
from isochrone_collector.errors import SettingsError


@click.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@reaching
def apply(plan: Path, *, dry_run: bool, yes: bool, output: str, collector: str | None, identity: Path | None) -> None:
    """Put a plan file into force.

    What changes and what it costs per day is shown before. Every problem of the file is reported with its line, and the
    exit code is then 2. A plan may hold routes, for which tables are built; see docs/routing.md.

    \b
    Example:
      isochrone-collector apply plan.yaml --collector 127.0.0.1:4600 --dry-run
    """
    asking = Asking(collector=collector, identity=identity)
    with click.open_file(str(plan), encoding="utf-8") as file:
        document = _read(file)
    change_plan(partial(asking.apply, document, applied_by=whoever()), dry_run=dry_run, yes=yes, output=output)


def _read(file: IO[str]) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise SettingsError(f"the plan is not UTF-8: {error}") from error
