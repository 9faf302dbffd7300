"""The command `isochrone-agent`: which subcommands there are, and what becomes of their errors."""

from importlib import import_module
from typing import Any

import click

from isochrone_agent.errors import AgentError
from isochrone_wire import __version__

COMMANDS = {
    "probe": "Measure one target now: every phase, time to first token, tokens per second.",
    "catalogue": "List the providers that can be probed by name.",
    "join": "Trade a join token for this machine's identity as a vantage.",
    "check": "Check what `run` needs, and how well this machine can measure.",
    "spool": "Look into the spool of an agent: what waits, and whether all of it can be read.",
    "run": "Run as the probe agent of a region.",
    "doctor": "Look at everything an agent stands on, and say what would help.",
}


class _LazyGroup(click.Group):
    """Loads a subcommand when it is called, and shows the agent's own errors as a sentence with a hint."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"isochrone_agent.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  # click's signature
        try:
            return super().invoke(ctx)
        except AgentError as error:
            click.echo(f"isochrone-agent: {error}", err=True)
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)
            ctx.exit(error.exit_code)


@click.group(
    cls=_LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
    epilog="""
    \b
    Exit codes:
      0  ok
      1  failed; of probe: no run succeeded
      2  usage or settings
      3  unreachable: no collector answers

    \b
    Example:
      isochrone-agent probe --base-url http://127.0.0.1:8080/v1 --model qwen3-8b --runs 3
    """,
)
@click.version_option(__version__, prog_name="isochrone-agent", message="%(prog)s %(version)s")
def cli() -> None:
    """Measure LLM APIs from where this machine stands."""


def main() -> None:
    """The entry point `isochrone-agent`."""
    cli(prog_name="isochrone-agent")
