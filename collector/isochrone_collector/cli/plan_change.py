"""A change of the plan in force, for `apply` and `plan rollback`: show it, ask, and carry it out."""

import getpass
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Protocol

import click

from isochrone_collector.cli.confirmation import confirm
from isochrone_collector.plans.cost import PER_DAY
from isochrone_collector.plans.diff import GONE_ROUTE, NEW_ROUTE
from isochrone_wire.json_format import to_json_value
from isochrone_wire.operations import PlanChange, PlanDocument, PlanHistory

WIDTH = 100
_SIGN_OF_ROUTES = {NEW_ROUTE: "+", GONE_ROUTE: "-"}
_EXIT_USAGE = 2

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change.")


class Work(Protocol):
    """A change of the plan; with `dry_run` it is only computed."""

    def __call__(self, *, dry_run: bool) -> PlanChange:
        """Return the differences."""
        ...


def local_user() -> str:
    """`user@host`, which the plan history records as the author of a change."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def change_plan(work: Work, *, dry_run: bool, yes: bool, output: str) -> None:
    """Show what `work` changes, ask for confirmation unless `yes`, and do it. Exit with 2 for an invalid document."""
    show = as_json if output == "json" else as_text
    change = work(dry_run=True)
    if change.problems:
        click.echo("\n".join(change.problems), err=True)
        if output == "json":
            click.echo(show(change))
        sys.exit(_EXIT_USAGE)
    if not dry_run and change.changed:
        if not yes:
            click.echo(as_text(change), err=True)
        confirm("Apply?", yes=yes)
        change = work(dry_run=False)
    click.echo(show(change))


def as_json(value: PlanChange | PlanDocument | PlanHistory) -> str:
    """The value as a JSON object, its keys those of the value, instants as text."""
    return json.dumps(to_json_value(value), indent=2, ensure_ascii=False)


def as_text(change: PlanChange) -> str:
    """The change as lines for a person, none wider than `WIDTH` unless one word is."""
    return "\n".join(part for line in _lines(change) for part in _folded(line))


def _lines(change: PlanChange) -> Iterator[str]:
    if not change.changed:
        yield f"unchanged: plan {change.version} already says this"
    else:
        yield f"plan {change.version}"
    yield from (f"  + {name}" for name in change.added)
    yield from (f"  - {name}" for name in change.removed)
    yield from (f"  {_signed(line)}" for line in change.altered if not line.startswith(PER_DAY))
    spend = "spend unknown: no target has a price"
    if change.usd_per_day is not None:
        spend = f"at most {change.usd_per_day:.2f} USD where prices are known"
    yield f"per vantage and day: {change.requests_per_day} requests, {spend}"
    yield from (f"  {line}" for line in change.altered if line.startswith(PER_DAY))


def _signed(line: str) -> str:
    for beginning, sign in _SIGN_OF_ROUTES.items():
        if line.startswith(beginning):
            return f"{sign} route {line.removeprefix(beginning)}"
    return f"~ {line}"


def _folded(line: str) -> Sequence[str]:
    if len(line) <= WIDTH:
        return [line]
    return wrap(line, WIDTH, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False)
