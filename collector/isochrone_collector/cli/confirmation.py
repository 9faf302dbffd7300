"""Confirmation of commands that change much at once."""

import sys

import click

from isochrone_collector.errors import SettingsError

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask the question on stderr unless `yes`, and end the command without confirmation.

    Raises `SettingsError` without a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError("cannot ask for confirmation: stdin is not a terminal", hint="pass --yes")
    click.confirm(question, abort=True, err=True)
