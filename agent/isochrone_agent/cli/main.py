import click

from isochrone_common.cli import command_line
from isochrone_wire import __version__

_HELP_OF = {
    "probe": "Measure one target now: every phase, time to first token, tokens per second.",
    "catalogue": "List the providers that can be probed by name.",
    "join": "Trade a join token for this machine's identity as a vantage.",
    "check": "Check what `run` needs, and how well this machine can measure.",
    "policy": "Show what this agent does at most, whatever a plan contains.",
    "spool": "Inspect and verify the spool of an agent, and export its quarantine.",
    "run": "Run as the probe agent of a region.",
    "doctor": "Check everything that an agent depends on, with a hint for each problem.",
    "completion": "Print the completion script of a shell.",
}
_PLACE_OF = {"check": "doctor:check_command", "catalogue": "probe:catalogue_command", "completion": "main:completion"}
COMMANDS = {
    name: command_line.Entry(f"isochrone_agent.cli.{_PLACE_OF.get(name, f'{name}:command')}", text)
    for name, text in _HELP_OF.items()
}
_EPILOG = "\n\n".join(
    (
        command_line.exit_codes(
            failed="failed; for probe: no run succeeded",
            _3="unreachable: no collector answers",
            _5="for probe: the median of the runs does not keep --max-ttft or --min-tps",
        ),
        command_line.example("isochrone-agent probe --base-url http://127.0.0.1:8080/v1 --model qwen3-8b --runs 3"),
    )
)


@click.group(cls=command_line.CommandGroup, entries=COMMANDS, context_settings=command_line.CONTEXT, epilog=_EPILOG)
@click.version_option(__version__, prog_name="isochrone-agent", message="%(prog)s %(version)s")
def cli() -> None:
    """Measure LLM APIs from this machine."""


completion = command_line.completion_command("isochrone-agent")


def main() -> None:
    """The entry point `isochrone-agent`."""
    cli(prog_name="isochrone-agent")
