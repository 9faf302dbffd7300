from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.errors import FileError, InsufficientError, StaticOrderError
from isochrone_client.formats import age
from isochrone_client.gateways import FORMATS, gateway
from isochrone_client.output_file import STDOUT, open_output
from isochrone_client.pages.routes import require_usable
from isochrone_client.route_follower import Follower, command_line
from isochrone_client.window import now_at
from isochrone_common.cli.command_line import output_option
from isochrone_common.route_consumer import defect
from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RegionTables, RouteState, is_usable


@options.command(
    "export",
    "isochrone routes export --region us-east-2 --output json --file -",
    "isochrone routes export --region us-east-2 --output litellm --file litellm.yaml",
    "isochrone routes export --region us-east-2 --output envoy --file routes.json --follow",
)
@output_option(*FORMATS, default=None, show_default=False, help="The gateway, json or csv.  [required]")
@options.region_option("--region", required=True, help="The region that requests are sent from.")
@options.route
@options.file(required=True, help="The file to write; - is standard output.")
@click.option("--follow", is_flag=True, help="Write the file again whenever its tables change, until interrupted.")
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="With --follow: run this after the first file and after each change of members, order or weights, without a "
    "shell.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; exit with 0 if the file has usable tables, 4 if it has a static order, else 1.",
)
@options.exporting
def export(
    *,
    collector: Collector,
    timeout_us: int,
    output: str | None,
    region: str,
    route: str,
    path: Path,
    follow: bool,
    command: str | None,
    check: bool,
) -> None:
    """Write the tables of a region as a file for a gateway.

    json is the HTTP answer, csv has a line per member; litellm, envoy, portkey, kong (for decK) and cloudflare (dynamic
    routes) are their configurations, and openrouter has the fields to put into requests.

    The file is replaced in one step, or not at all: a table that is expired or has too little evidence is left out, and
    when none is left the file stays as it was and the command fails. The file names API keys and never contains them.

    With --follow each new generation replaces it. Without the collector the file stays, until it is back; a
    table that has expired gives way to the static order of the plan.

    envoy takes two files, routes in FILE and clusters next to it: for routes.json that is routes.clusters.json.
    """
    if output is None:
        raise click.UsageError(f"name one format with --output: {', '.join(FORMATS)}")
    if follow and check:
        raise click.UsageError("--check does not go with --follow: run it beside")
    if command is not None and not follow:
        raise click.UsageError("--exec needs --follow")
    if (follow or check) and path == STDOUT:
        raise click.UsageError(f"--{'follow' if follow else 'check'} needs a file")
    if check:
        click.echo(check_file(path, output, now_at=now_at()))
        return
    if follow:
        Follower(
            collector=collector,
            timeout_us=timeout_us,
            region=region,
            route=route,
            render=gateway(output).render,
            write=lambda texts: _write_parts(path, texts),
            command=command_line(command),
        ).run()
        return
    with ReadClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_tables(region, route)
    texts = gateway(output).render(_usable(answer))
    _write_parts(path, texts)
    if path != STDOUT:
        for part in texts:
            terminal.remark(f"written: {_beside(path, part)}")


def _usable(answer: RegionTables) -> RegionTables:
    """The tables that may be used; the others are reported. Raises `InsufficientError` if there are none."""
    now = now_at()
    require_usable(answer.tables, now_at=now)
    tables = []
    for table in answer.tables:
        if why := defect(table):
            terminal.remark(f"{table.route} is left out: {why}")
        elif not is_usable(table, now_at=now):
            terminal.remark(f"{table.route} is left out: its table is expired or has too little evidence")
        else:
            tables.append(table)
    if not tables:
        raise InsufficientError("no table is usable", hint="is the collector of the same version?")
    return replace(answer, tables=tuple(tables))


def _beside(path: Path, part: str) -> Path:
    """`routes.json` and, for the part `clusters`, `routes.clusters.json`; what goes to stdout all goes there."""
    return path.with_name(f"{path.stem}.{part}{path.suffix}") if part and path != STDOUT else path


def _write_parts(path: Path, texts: Mapping[str, str]) -> None:
    for part, text in texts.items():
        with open_output(_beside(path, part), force=True) as file:
            file.write(text.encode())


_IS_FOLLOWED = "is `isochrone routes export --follow` running?"


def check_file(path: Path, kind: str, *, now_at: int) -> str:
    """A sentence about the tables of an exported file, for monitoring. Asks no collector.

    Raises `FileError` if the file is missing, has other content or an expired table, and `StaticOrderError` if a
    route has its static order.
    """
    tables = _read(path, kind)
    static = _names(table for table in tables if table["state"] == RouteState.INSUFFICIENT_DATA.value)
    if static:
        raise StaticOrderError(
            f"{path} has the static order of {static}", hint="is the collector reachable? see `isochrone routes`"
        )
    stale_at = min(_microseconds(table["stale_until_at"]) for table in tables)
    if now_at >= stale_at:
        expired = _names(table for table in tables if _microseconds(table["stale_until_at"]) <= now_at)
        raise FileError(f"{path} expired {age(stale_at, now_at=now_at)} ago: {expired}", hint=_IS_FOLLOWED)
    newest = max(int(table["generation"]) for table in tables)
    return f"{path} has generation {newest}, usable for {age(now_at, now_at=stale_at)}"


def _read(path: Path, kind: str) -> list[Mapping[str, str]]:
    with suppress(ValueError, KeyError, TypeError):
        try:
            tables = list(gateway(kind).read_metadata(path.read_text()))
        except OSError as error:
            raise FileError(f"cannot read {path}: {error.strerror}", hint=_IS_FOLLOWED) from error
        if tables and all(_microseconds(table["stale_until_at"]) and int(table["generation"]) for table in tables):
            return tables
    raise FileError(f"{path} is no {kind} export with tables", hint=_IS_FOLLOWED)


def _microseconds(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp() * SECOND_US)


def _names(tables: Iterable[Mapping[str, str]]) -> str:
    return ", ".join(sorted({table["route"] for table in tables}))
