"""`isochrone-collector apply`: a plan file into force."""

import getpass
import socket
import sys
from pathlib import Path
from typing import IO

import click

from isochrone_collector import applying, settings
from isochrone_collector.errors import SettingsError

_EXIT_USAGE = 2


@click.command()
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
