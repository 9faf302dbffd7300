"""The command `isochrone`: its subcommands and its help."""

import click

from isochrone_client import terminal
from isochrone_wire import __version__
from isochrone_wire.cli.command_line import CONTEXT, CommandGroup, Entry, example, exit_codes

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


_EPILOG = "\n\n".join(
    (
        exit_codes(
            usage="usage: an unknown option, target or region, or a time range that cannot be read",
            _3="unreachable: no collector answers",
            _4="undecided or insufficient data; what there is has been printed",
        ),
        example("isochrone diff --against ap-southeast-1 --window 24h"),
    )
)


@click.group(cls=CommandGroup, entries=COMMANDS, context_settings=CONTEXT, epilog=_EPILOG)
@click.version_option(__version__, prog_name="isochrone", message="%(prog)s %(version)s")
def cli() -> None:
    """Ask a collector how long LLM APIs take to answer, from every region, and how sure that is."""


def main() -> None:
    """The entry point `isochrone`."""
    terminal.tolerate_any_encoding()
    cli(prog_name="isochrone")
