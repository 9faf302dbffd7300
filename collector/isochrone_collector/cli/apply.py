"""`isochrone-collector apply`: put a plan file into force."""

from functools import partial
from pathlib import Path
from typing import IO

import click

from isochrone_collector.cli import plan_change, plan_signing
from isochrone_collector.cli.confirmation import yes_option
from isochrone_collector.cli.operator_client import OperatorClient, operator_options
from isochrone_collector.cli.plan_change import change_plan, local_user
from isochrone_collector.errors import SettingsError
from isochrone_common.cli.command_line import example, table_or_json


@click.command(epilog=example("isochrone-collector apply plan.yaml --collector 127.0.0.1:4600 --dry-run"))
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@plan_change.dry_run_option
@yes_option
@plan_signing.sign_option
@table_or_json
@operator_options
def apply(plan: Path, *, dry_run: bool, yes: bool, key_file: Path | None, output: str, client: OperatorClient) -> None:
    """Put a plan file into force.

    The changes and the cost per day are shown first. Every problem of the file is reported with its line, and the exit
    code is then 2. A plan may define routes, for which tables are built; see docs/routing.md.
    """
    with click.open_file(str(plan), encoding="utf-8") as file:
        document = _read(file)
    signature = plan_signing.signature_of(document, key_file)
    work = partial(client.apply, document, applied_by=local_user(), signature=signature)
    change_plan(work, dry_run=dry_run, yes=yes, output=output)


def _read(file: IO[str]) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise SettingsError(f"the plan is not UTF-8: {error}") from error
