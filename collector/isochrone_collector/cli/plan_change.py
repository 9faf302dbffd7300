"""How a command changes the plan in force: it shows the change first, and asks."""

import getpass
import socket
import sys
from typing import Protocol

import click

from isochrone_collector.cli import plan_client
from isochrone_collector.errors import SettingsError
from isochrone_wire.operations import PlanChange

_EXIT_USAGE = 2

output_option = click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print the answer.",
)


class Work(Protocol):
    """A change of the plan that is carried out, or with `dry_run` only told."""

    def __call__(self, *, dry_run: bool) -> PlanChange:
        """What it changes, or would."""
        ...


def whoever() -> str:
    """Who changes the plan, as the history will say it."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def change_plan(work: Work, *, dry_run: bool, yes: bool, output: str) -> None:
    """Show what `work` changes, ask unless told `yes`, and do it. Exits with 2 when the document has problems."""
    show = plan_client.as_json if output == "json" else plan_client.as_text
    change = work(dry_run=True)
    if change.problems:
        click.echo("\n".join(change.problems), err=True)
        if output == "json":
            click.echo(show(change))
        sys.exit(_EXIT_USAGE)
    if not dry_run and change.changed:
        if not yes:
            click.echo(plan_client.as_text(change), err=True)
            _confirm()
        change = work(dry_run=False)
    click.echo(show(change))


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise SettingsError("nobody is there to ask whether to apply this", hint="say --yes, or --dry-run")
    click.confirm("Apply?", abort=True, err=True)
