import click

from isochrone_common.cli.command_line import CONTEXT, CommandGroup, Entry, example, exit_codes
from isochrone_wire import __version__

# By topic: the name of a command, as of its function; its module in `commands`; and its line in the list of commands.
_LISTED = {
    "Now": (
        ("status", "status", "Show what is wrong now, since when, where, and how sure that is."),
        ("watch", "watch", "Show all targets from all regions on one screen, live."),
        ("incidents", "alerts", "Show the targets that fail or are throttled, and since when."),
        ("vantages", "fleet", "Show which vantages are online, their clocks, spools and plans."),
        ("targets", "fleet", "List the targets that are being measured."),
        ("rate-limits", "fleet", "Show what remains of the rate limits that providers state in response headers."),
    ),
    "Compare": (
        ("diff", "diff", "Compare regions with a baseline, target by target."),
        ("leaderboard", "leaderboard", "Rank targets by latency, speed, price or success, per region."),
        ("regions", "leaderboard", "Show the nearest region of each provider, and how much slower the others are."),
        ("slo", "slo", "Show which targets are fast enough for which use, per region."),
        ("tiers", "leaderboard", "Rank targets by median TTFT within their price tier."),
    ),
    "History": (
        ("series", "samples", "Show values and outcomes over time, per target and region."),
        ("samples", "samples", "Show single probes, failed ones too, newest last; export all of them."),
        ("coverage", "fleet", "Show how many planned rounds left a sample, and with which outcomes."),
        ("drift", "alerts", "Show lasting changes, and since when."),
        ("alerts", "alerts", "Show the alerts and their delivery to receivers."),
        (
            "report",
            "report",
            "Write a report: differentials, their causes, leaderboards, latency targets, tiers, drift and coverage.",
        ),
    ),
    "Routes": (
        ("routes", "routes", "Show where to send requests now, per region; watch and export it."),
        ("explain", "routes", "Show the decision behind a route's table."),
        ("simulate", "slo", "Replay the recorded rounds under other routing policies."),
        (
            "gateway",
            "gateway",
            "Route the requests of any client, beside your service: an OpenAI- and Anthropic-compatible API.",
        ),
    ),
    "Manage": (
        ("join", "context", "Trade a join token for access to a collector."),
        ("context", "context", "Name collectors, and choose the one to ask by default."),
        ("page", "page", "Print the address of the live page, with a login where it requires one."),
        ("mcp", "mcp", "Answer an assistant's questions over the Model Context Protocol."),
        ("demo", "demo", "Run the whole system on this machine in a simulated world, and show its findings."),
    ),
}
COMMANDS = {
    name: Entry(f"isochrone_client.commands.{module}:{name.replace('-', '_')}", line, topic)
    for topic, listed in _LISTED.items()
    for name, module, line in listed
} | {"completion": Entry("isochrone_client.completion:completion", "Print the completion script of a shell.", "Manage")}
_EPILOG = exit_codes(
    usage="usage: an unknown option, target or region, or a time range that cannot be read",
    _3="unreachable: no collector answers",
    _4="with --exit-code: undecided or insufficient data; the answer is printed all the same",
    _5="`status`: a warning",
    _6="`status`: a critical finding",
)
_EXAMPLE = example("isochrone diff --against ap-southeast-1 --window 24h")


class _Program(CommandGroup):
    """The commands; without one, `status` of a known collector."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click."""
        if not args and not ctx.resilient_parsing:
            from isochrone_client.address import is_known  # noqa: PLC0415  # only where no command is given

            args = ["status"] if is_known() else args
        return super().parse_args(ctx, args)


@click.group(cls=_Program, entries=COMMANDS, context_settings=CONTEXT, epilog=f"{_EPILOG}\n\n{_EXAMPLE}")
@click.version_option(__version__, prog_name="isochrone", message="%(prog)s %(version)s")
def cli() -> None:
    """Ask a collector how long LLM APIs take to answer, from every region, and how sure that is."""


def main() -> None:
    """The entry point `isochrone`."""
    cli(prog_name="isochrone")
