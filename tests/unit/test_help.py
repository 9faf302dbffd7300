"""What the commands say of themselves fits where it is said."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from isochrone_agent.cli.main import cli as agent
from isochrone_client.cli import cli as client
from isochrone_collector.cli.main import cli as collector

PROGRAMS = {"isochrone": client, "isochrone-agent": agent, "isochrone-collector": collector}


def groups(program: str) -> Iterator[tuple[list[str], click.Group]]:
    """Every group of a program, itself first, with the words that lead to it."""
    waiting: list[tuple[list[str], click.Group]] = [([], PROGRAMS[program])]
    while waiting:
        words, group = waiting.pop()
        yield words, group
        context = click.Context(group)
        commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
        waiting += [([*words, name], found) for name, found in commands.items() if isinstance(found, click.Group)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_command_is_cut_short_in_the_list_of_commands(program: str) -> None:
    """On 80 columns each command is listed with a whole sentence: click would cut a longer one and put dots."""
    for words, group in groups(program):
        shown = CliRunner().invoke(PROGRAMS[program], [*words, "--help"], env={"COLUMNS": "80"}).output
        listed = shown.partition("Commands:\n")[2].partition("\n\n")[0]
        assert "..." not in listed, listed
        said = [line.split() for line in listed.splitlines()]
        for name in group.list_commands(click.Context(group)):
            assert any(line[:1] == [name] and len(line) > 1 for line in said), (name, listed)
