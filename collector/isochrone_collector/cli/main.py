"""The command `isochrone-collector`: its subcommands and its help.

A base install (enough for an agent) has this command too, but not the libraries that it needs. So this module imports
click only, and `main` names the missing extra before anything else is imported.
"""

import sys
from importlib.util import find_spec

import click

from isochrone_common.cli import command_line
from isochrone_wire import __version__

_NEEDED = (
    *("alembic", "cryptography", "grpc_health", "grpc_reflection", "httpx", "numpy", "psycopg", "psycopg_pool"),
    *("pydantic", "scipy", "starlette", "uvicorn", "yaml"),
)
_HELP_OF = {
    "serve": "Serve agents, readers and operators until stopped.",
    "migrate": "Bring a database to the newest revision.",
    "vantage": "Let agents in, one name each, and shut them out.",
    "access": "Let readers and operators in, and shut them out.",
    "certificate": "Replace the collector's own certificate.",
    "apply": "Put a plan file into force.",
    "plan": "Show the plans that were applied, or go back to one.",
    "restored": "Void what a restored database has revived.",
    "audit": "List the changes that operators and joining machines made.",
    "alerts": "Try out how alerts reach receivers, silence and acknowledge them.",
    "doctor": "Check everything that a collector depends on.",
    "completion": "Print the completion script of a shell.",
}
_MODULE_OF = {"vantage": "access", "restored": "access", "audit": "access", "apply": "plan", "completion": "main"}
COMMANDS = {
    name: command_line.Entry(f"isochrone_collector.cli.{_MODULE_OF.get(name, name)}:{name}", text)
    for name, text in _HELP_OF.items()
}
_EPILOG = "\n\n".join(
    (command_line.exit_codes(_3="unreachable: no collector answers"), command_line.example("isochrone-collector serve"))
)


@click.group(cls=command_line.CommandGroup, entries=COMMANDS, context_settings=command_line.CONTEXT, epilog=_EPILOG)
@click.version_option(__version__, prog_name="isochrone-collector", message="%(prog)s %(version)s")
def cli() -> None:
    """Operate a collector: serve, migrate its database, admit agents and readers, apply plans."""


completion = command_line.completion_command("isochrone-collector")


def missing_modules() -> list[str]:
    """The modules of the extra `collector` that are not installed here."""
    return [name for name in _NEEDED if find_spec(name) is None]


def main() -> None:
    """The entry point `isochrone-collector`: run a command, or exit 1 and name the extra that is missing."""
    missing = missing_modules()
    if missing:
        hint = "pip install 'isochrone[collector]', or 'isochrone[collector,embedded]' to include PostgreSQL"
        command_line.print_error(f"isochrone-collector needs {', '.join(missing)}", hint)
        sys.exit(1)
    cli(prog_name="isochrone-collector")
