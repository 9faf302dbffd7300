"""`isochrone-collector plan`: the plans that were applied, and the way back to one."""

from functools import partial
from pathlib import Path

import click

from isochrone_collector.cli import plan_change, plan_signing
from isochrone_collector.cli.confirmation import yes_option
from isochrone_collector.cli.operator_client import OperatorClient, operator_options
from isochrone_collector.cli.plan_change import change_plan, local_user
from isochrone_common.cli.command_line import example, table_or_json
from isochrone_wire.json_format import rfc3339
from isochrone_wire.operations import PlanHistory, PlanVersion
from isochrone_wire.text import aligned, shortened

_MAX_SHOWN = 1_000
# The prefix of a public key, and enough of the rest to distinguish it.
_KEY_CHARS = 24


@click.group(epilog=example("isochrone-collector plan history"))
def plan() -> None:
    """Show the plans that were applied, or go back to one."""


@plan.command(epilog=example("isochrone-collector plan history --limit 5"))
@click.option("--limit", type=click.IntRange(1, _MAX_SHOWN), default=20, show_default=True, help="Most plans to list.")
@table_or_json
@operator_options
def history(*, limit: int, output: str, client: OperatorClient) -> None:
    """List the plans that were applied, newest first.

    The newest is the one in force.
    """
    found = client.history(limit)
    if not found.plans and output == "table":
        click.echo("no plan has been applied yet: isochrone-collector apply plan.yaml", err=True)
        return
    click.echo(plan_change.as_json(found) if output == "json" else history_as_text(found))


@plan.command(epilog=example("isochrone-collector plan show 3 > plan.yaml"))
@click.argument("version", type=click.IntRange(1), required=False)
@table_or_json
@operator_options
def show(*, version: int | None, output: str, client: OperatorClient) -> None:
    """Print a plan as it was written.

    Without VERSION that is the plan in force. The text is unchanged, so that it can be edited and applied again.
    `plan rollback VERSION --dry-run` shows what going back to it would change and cost.
    """
    found = client.document(version)
    click.echo(plan_change.as_json(found)) if output == "json" else click.echo(found.document, nl=False)


@plan.command(epilog=example("isochrone-collector plan rollback 3 --dry-run"))
@click.argument("version", type=click.IntRange(1))
@plan_change.dry_run_option
@yes_option
@plan_signing.sign_option
@table_or_json
@operator_options
def rollback(
    *, version: int, dry_run: bool, yes: bool, key_file: Path | None, output: str, client: OperatorClient
) -> None:
    """Put an earlier plan into force again, as a new version.

    The changes are shown first. Agents that have pinned a key refuse the earlier signature: --sign verifies it, and
    signs the plan again.
    """
    signature = plan_signing.renewed_signature(client.document(version), key_file) if key_file else b""
    work = partial(client.roll_back, version, applied_by=local_user(), signature=signature)
    change_plan(work, dry_run=dry_run, yes=yes, output=output)


@plan.command(epilog=example("isochrone-collector plan key plan-key.pem"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def key(*, file: Path) -> None:
    """Make a key for signing plans, and print its public key.

    FILE has the private key, which the collector never needs: keep it elsewhere. For an existing FILE, the command only
    prints the public key. Agents pin it by `isochrone-agent join --plan-key`, or by plan_key in their policy.
    """
    public, is_new = plan_signing.make_key(file)
    click.echo(f"private key: {file}{'' if is_new else ' (existing)'}", err=True)
    click.echo(public)


def history_as_text(history: PlanHistory) -> str:
    """The plans as a table for a person."""
    return aligned([("VERSION", "APPLIED", "TARGETS", "BY"), *(_row(plan) for plan in history.plans)])


def _row(plan: PlanVersion) -> tuple[str, str, str, str]:
    restored = "" if plan.restores is None else f", restoring {plan.restores}"
    signed = "" if plan.signed_by is None else f", signed with {shortened(plan.signed_by, _KEY_CHARS)}"
    return str(plan.version), rfc3339(plan.applied_at), str(plan.targets), plan.applied_by + restored + signed
