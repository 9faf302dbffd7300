"""The command `isochrone`: its subcommands and its help."""

import click

from isochrone_common.cli.command_line import CONTEXT, CommandGroup, Entry, example, exit_codes
from isochrone_wire import __version__

COMMANDS: dict[str, Entry] = {
    "diff": Entry("isochrone_client.commands.diff:diff", "Compare regions with a baseline, target by target."),
    "leaderboard": Entry(
        "isochrone_client.commands.leaderboard:leaderboard",
        "Rank targets by latency, speed, price or success, per region.",
    ),
    "regions": Entry(
        "isochrone_client.commands.leaderboard:regions",
        "Show the nearest region of each provider, and how much slower the others are.",
    ),
    "vantages": Entry(
        "isochrone_client.commands.fleet:vantages", "Show which vantages are online, their clocks, spools and plans."
    ),
    "slo": Entry("isochrone_client.commands.slo:slo", "Show which targets are fast enough for which use, per region."),
    "watch": Entry("isochrone_client.commands.watch:watch", "Show all targets from all regions on one screen, live."),
    "tiers": Entry(
        "isochrone_client.commands.leaderboard:tiers", "Rank targets by median TTFT within their price tier."
    ),
    "targets": Entry("isochrone_client.commands.fleet:targets", "List the targets that are being measured."),
    "simulate": Entry(
        "isochrone_client.commands.slo:simulate", "Replay the recorded rounds under other routing policies."
    ),
    "routes": Entry(
        "isochrone_client.commands.routes:routes",
        "Show where to send requests now, per region; watch and export it.",
    ),
    "explain": Entry("isochrone_client.commands.routes:explain", "Show the decision behind a route's table."),
    "samples": Entry(
        "isochrone_client.commands.samples:samples",
        "Show single probes, failed ones too, newest last; export all of them.",
    ),
    "coverage": Entry(
        "isochrone_client.commands.fleet:coverage",
        "Show how many planned rounds left a sample, and with which outcomes.",
    ),
    "series": Entry(
        "isochrone_client.commands.samples:series", "Show values and outcomes over time, per target and region."
    ),
    "rate-limits": Entry(
        "isochrone_client.commands.fleet:rate_limits",
        "Show what remains of the rate limits that providers state in response headers.",
    ),
    "drift": Entry("isochrone_client.commands.alerts:drift", "Show lasting changes, and since when."),
    "incidents": Entry(
        "isochrone_client.commands.alerts:incidents", "Show the targets that fail or are throttled, and since when."
    ),
    "alerts": Entry("isochrone_client.commands.alerts:alerts", "Show the alerts and their delivery to receivers."),
    "report": Entry(
        "isochrone_client.commands.report:report",
        "Write a report: differentials, their causes, leaderboards, latency targets, tiers, drift and coverage.",
    ),
    "join": Entry("isochrone_client.commands.context:join", "Trade a join token for access to a collector."),
    "context": Entry(
        "isochrone_client.commands.context:context", "Name collectors, and choose the one to ask by default."
    ),
    "mcp": Entry(
        "isochrone_client.commands.mcp:mcp", "Answer an assistant's questions over the Model Context Protocol."
    ),
    "demo": Entry(
        "isochrone_client.commands.demo:demo",
        "Run the whole system on this machine in a simulated world, and show its findings.",
    ),
    "completion": Entry("isochrone_client.completion:completion", "Print the completion script of a shell."),
}


_EPILOG = "\n\n".join(
    (
        exit_codes(
            usage="usage: an unknown option, target or region, or a time range that cannot be read",
            _3="unreachable: no collector answers",
            _4="with --exit-code: undecided or insufficient data; the answer is printed all the same",
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
    cli(prog_name="isochrone")
