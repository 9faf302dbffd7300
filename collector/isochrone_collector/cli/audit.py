"""`isochrone-collector audit`: the changes that operators and joining machines made."""

import json
from collections.abc import Sequence

import click

from isochrone_collector.cli.operator_client import OperatorClient, operator_options
from isochrone_collector.clock import now_at
from isochrone_common.cli.command_line import example, table_or_json
from isochrone_wire.durations import parse_us
from isochrone_wire.json_format import rfc3339, to_json_value
from isochrone_wire.operations import AuditEntry
from isochrone_wire.text import aligned

SCHEMA = "isochrone.audit/1"
_MOST = 10_000
_HEADINGS = ("at", "principal", "address", "action", "target")


def _since(_context: click.Context, _parameter: click.Parameter, written: str) -> int:
    try:
        return now_at() - parse_us(written)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(epilog=example("isochrone-collector audit --since 30d --action access.revoke"))
@click.option(
    "--since", "since_at", callback=_since, default="7d", show_default=True, metavar="DURATION", help="Window."
)
@click.option("--principal", default="", metavar="NAME", help="Only changes by this credential.")
@click.option("--action", default="", metavar="ACTION", help="Only this action, such as plan.apply or access.join.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=100, show_default=True, help="Most changes to list.")
@table_or_json
@operator_options
def audit(*, since_at: int, principal: str, action: str, limit: int, output: str, client: OperatorClient) -> None:
    """List the changes that operators and joining machines made, newest first.

    The collector records each change in its transaction, with the name of the credential and the address that the call
    came from. The database refuses to change or remove what is recorded.
    """
    found = client.audit(since_at=since_at, limit=limit, principal=principal, action=action).entries
    if output == "json":
        click.echo(json.dumps({"schema": SCHEMA, "entries": to_json_value(found)}, indent=2, ensure_ascii=False))
        return
    click.echo(_table(found) if found else "none")
    if len(found) == limit:
        click.echo(f"note: only the newest {limit}; see --limit", err=True)


def _table(found: Sequence[AuditEntry]) -> str:
    rows = ((rfc3339(one.at), one.principal, one.address or "-", one.action, one.target) for one in found)
    return aligned([_HEADINGS, *rows])
