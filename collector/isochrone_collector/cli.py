"""`isochrone-collector`: operate a collector. Exit codes: 0 ok, 1 failed, 2 usage, 3 unreachable."""

import asyncio
import getpass
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import click

from isochrone_collector import applying, logs, settings
from isochrone_collector.errors import CollectorError, SettingsError
from isochrone_collector.store import schema
from isochrone_collector.store.pool import describe

_EXIT_USAGE = 2


class _Failure(click.ClickException):
    """One of our errors as click shows it: the sentence, then the hint."""

    def __init__(self, error: CollectorError) -> None:
        super().__init__(str(error))
        self.error = error

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click declares a class variable and only reads it
        """The exit code of the error's class."""
        return self.error.exit_code

    def show(self, file: IO[str] | None = None) -> None:
        click.echo(f"error: {self.message}", err=True, file=file)
        if self.error.hint:
            click.echo(f"hint: {self.error.hint}", err=True, file=file)


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CollectorError as error:
            raise _Failure(error) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="isochrone")
def main() -> None:
    """Operate the collector: serve it, migrate its database, apply plans.

    \b
    Example:
      isochrone-collector serve
    """


@main.command()
@click.option(
    "--listen",
    envvar="ISOCHRONE_LISTEN",
    default=settings.DEFAULT_LISTEN,
    show_default=True,
    help="Address; port 0 takes a free one.",
)
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", help="PostgreSQL to use instead of the embedded one.")
@click.option(
    "--data-dir",
    envvar="ISOCHRONE_DATA_DIR",
    type=click.Path(path_type=Path),
    help="Where the embedded PostgreSQL keeps its files. [default: $XDG_DATA_HOME/isochrone/collector]",
)
@click.option(
    "--log-format",
    envvar="ISOCHRONE_LOG_FORMAT",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    show_default=True,
    help="How to log to stderr.",
)
def serve(listen: str, database_url: str | None, data_dir: Path | None, log_format: logs.Format) -> None:
    """Serve agents, readers and operators until stopped.

    Once it serves, one line of JSON says so on stdout when that is not a terminal.

    \b
    Example:
      isochrone-collector serve --listen 127.0.0.1:4600 --database-url postgresql://isochrone@db/isochrone
    """
    chosen = settings.check(listen=listen, database_url=database_url, data_dir=data_dir, environment=os.environ)
    logs.set_up(log_format)
    from isochrone_collector import server  # noqa: PLC0415  # half a second that no other command should wait

    asyncio.run(server.serve(chosen, _announce))


@main.command()
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", required=True, help="PostgreSQL to migrate.")
def migrate(database_url: str) -> None:
    """Bring a database to the newest revision; `serve` does the same when it starts.

    \b
    Example:
      isochrone-collector migrate --database-url postgresql://isochrone@db/isochrone
    """
    before, after = schema.migrate(database_url)
    done = "already at" if before == after else f"migrated from {before or 'nothing'} to"
    click.echo(f"{describe(database_url)}: {done} revision {after}")


@main.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--collector",
    envvar="ISOCHRONE_COLLECTOR",
    default=settings.DEFAULT_LISTEN,
    show_default=True,
    help="Address of the collector.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print the change.",
)
def apply(plan: Path, collector: str, dry_run: bool, yes: bool, output: str) -> None:
    """Put a plan file into force, after showing what changes and what it costs per day.

    Every problem of the file is reported with its line, and the exit code is then 2.

    \b
    Example:
      isochrone-collector apply plan.yaml --collector 127.0.0.1:4600 --dry-run
    """
    settings.parse_address(collector)
    with click.open_file(str(plan), encoding="utf-8") as file:
        document = _read(file)
    whoever = f"{getpass.getuser()}@{socket.gethostname()}"
    show = applying.as_json if output == "json" else applying.as_text
    change = applying.apply(collector, document, dry_run=True, applied_by=whoever)
    if change.problems:
        click.echo("\n".join(change.problems), err=True)
        if output == "json":
            click.echo(show(change))
        sys.exit(_EXIT_USAGE)
    if not dry_run and change.changed:
        if not yes:
            click.echo(applying.as_text(change), err=True)
            _confirm()
        change = applying.apply(collector, document, dry_run=False, applied_by=whoever)
    click.echo(show(change))


def _read(file: IO[str]) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise SettingsError(f"the plan is not UTF-8: {error}") from error


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise SettingsError("nobody is there to ask whether to apply this", hint="say --yes, or --dry-run")
    click.confirm("Apply?", abort=True, err=True)


def _announce(ready: Mapping[str, str]) -> None:
    if not sys.stdout.isatty():
        click.echo(json.dumps({"ready": True, **ready}))
