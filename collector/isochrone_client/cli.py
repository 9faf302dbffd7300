"""The `isochrone` command: which subcommands there are, and what becomes of their errors.

Subcommands are loaded when they are called, so that `isochrone --help` waits for neither gRPC nor rich.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import cast

import click

from isochrone_client import terminal
from isochrone_client.errors import ClientError
from isochrone_wire import __version__


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a subcommand lives, `module:attribute`, and what `--help` says of it."""

    place: str
    help: str

    def load(self) -> click.Command:
        """The subcommand itself."""
        module, _, attribute = self.place.partition(":")
        return cast(click.Command, getattr(import_module(module), attribute))


COMMANDS: dict[str, Entry] = {
    "diff": Entry("isochrone_client.commands.diff:diff", "Compare regions with a baseline, target by target."),
    "leaderboard": Entry(
        "isochrone_client.commands.leaderboard:leaderboard",
        "Rank targets by latency, speed, price or success, per region.",
    ),
    "regions": Entry(
        "isochrone_client.commands.regions:regions",
        "Show which vantages are online, their clocks, spools and plans.",
    ),
    "budgets": Entry(
        "isochrone_client.commands.budgets:budgets",
        "Show which targets are fast enough for which use, per region.",
    ),
    "tiers": Entry("isochrone_client.commands.tiers:tiers", "Rank targets by median TTFT within their price tier."),
    "targets": Entry("isochrone_client.commands.targets:targets", "List the targets that are being measured."),
    "simulate": Entry(
        "isochrone_client.commands.simulate:simulate",
        "Play the recorded rounds again as if each request had gone by another policy.",
    ),
    "routes": Entry(
        "isochrone_client.commands.routes:routes", "Show where to send requests now, from each region; watch it."
    ),
    "explain": Entry("isochrone_client.commands.explain:explain", "Show why a route's table is as it is."),
    "samples": Entry(
        "isochrone_client.commands.samples:samples",
        "Show single probes, failed ones too, the newest last; export all of them.",
    ),
    "coverage": Entry(
        "isochrone_client.commands.coverage:coverage",
        "Show how many planned rounds left a sample, and with which outcomes.",
    ),
    "drift": Entry("isochrone_client.commands.drift:drift", "Show what has lastingly changed, and since when."),
    "alerts": Entry(
        "isochrone_client.commands.alerts:alerts", "Show the alerts, and whether anybody was told of them."
    ),
    "report": Entry(
        "isochrone_client.commands.report:report",
        "Write a report: differentials, where they come from, leaderboards, budgets, tiers, drift and coverage.",
    ),
    "join": Entry("isochrone_client.commands.join:join", "Trade a join token for access to a collector."),
    "demo": Entry(
        "isochrone_client.commands.demo:demo",
        "Run the whole system on this machine, in a simulated world, and show what it finds.",
    ),
    "completion": Entry(
        "isochrone_client.commands.completion:completion",
        "Print the completion script of a shell.",
    ),
}


# The backspaces keep click from filling the lines.
_EPILOG = """\b
Exit codes:
  0  ok
  1  failed
  2  usage: an unknown option, target or region, or a time range that cannot be read
  3  unreachable: no collector answers
  4  undecided or insufficient data; what there is has been printed

\b
Example:
  isochrone diff --against ap-southeast-1 --window 24h
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads them on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        """The command of that name, loaded now."""
        entry = COMMANDS.get(cmd_name)
        return entry.load() if entry else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's signature
        """The names with their help from the table, so that nothing is loaded for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the command called; an error of ours becomes its sentence, its hint and its exit code."""
        try:
            return super().invoke(ctx)
        except ClientError as error:
            terminal.complain(error)
            ctx.exit(error.exit_code)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.version_option(__version__, prog_name="isochrone", message="%(prog)s %(version)s")
def cli() -> None:
    """Ask a collector how long LLM APIs take to answer, from every region, and how sure that is."""


def main() -> None:
    """The entry point `isochrone`."""
    terminal.tolerate_any_encoding()
    cli(prog_name="isochrone")
