"""`isochrone-collector plan`: the plans there were, and the way back to one."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from isochrone_collector.cli import plan_client
from isochrone_collector.cli.options import reaching
from isochrone_collector.cli.plan_change import change_plan, output_option, whoever
from isochrone_collector.cli.plan_client import Asking

_MAX_SHOWN = 1_000


@click.group()
def plan() -> None:
    """Look at the plans that were applied, or go back to one.

    \b
    Example:
      isochrone-collector plan history
    """


@plan.command()
@click.option("--limit", type=click.IntRange(1, _MAX_SHOWN), default=20, show_default=True, help="Most plans to list.")
@output_option
@reaching
def history(*, limit: int, output: str, collector: str | None, identity: Path | None) -> None:
    """List the plans that were applied, newest first.

    The newest is the one in force.

    \b
    Example:
      isochrone-collector plan history --limit 5
    """
    found = Asking(collector=collector, identity=identity).history(limit)
    if not found.plans and output == "table":
        click.echo("no plan has been applied yet: isochrone-collector apply plan.yaml", err=True)
        return
    click.echo(plan_client.as_json(found) if output == "json" else plan_client.history_as_text(found))


@plan.command()
@click.argument("version", type=click.IntRange(1), required=False)
@output_option
@reaching
def show(*, version: int | None, output: str, collector: str | None, identity: Path | None) -> None:
    """Print a plan as it was written.

    Without VERSION that is the plan in force. It comes word for word, so that it can be edited and applied again; what
    going back to it would change and cost, `plan rollback VERSION --dry-run` tells.

    \b
    Example:
      isochrone-collector plan show 3 > plan.yaml
    """
    found = Asking(collector=collector, identity=identity).document(version)
    click.echo(plan_client.as_json(found)) if output == "json" else click.echo(found.document, nl=False)


@plan.command()
@click.argument("version", type=click.IntRange(1))
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@reaching
def rollback(*, version: int, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Put an earlier plan into force again.

    It becomes a new version, after what changes was shown.

    \b
    Example:
      isochrone-collector plan rollback 3 --dry-run
    """
    _roll_back(version, **told)


def _roll_back(
    version: int, *, dry_run: bool, yes: bool, output: str, collector: str | None, identity: Path | None
) -> None:
    asking = Asking(collector=collector, identity=identity)
    change_plan(partial(asking.roll_back, version, applied_by=whoever()), dry_run=dry_run, yes=yes, output=output)
