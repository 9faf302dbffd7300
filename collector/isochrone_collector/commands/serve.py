"""`isochrone-collector serve`: the collector itself."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from isochrone_collector import logs, settings


@click.command()
@click.option(
    "--listen",
    envvar="ISOCHRONE_LISTEN",
    default=settings.DEFAULT_LISTEN,
    show_default=True,
    help="Address; port 0 takes a free one.",
)
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", help="PostgreSQL to use instead of the embedded one.")
@click.option(
    "--data-dir",
    envvar="ISOCHRONE_DATA_DIR",
    type=click.Path(path_type=Path),
    help="Where the embedded PostgreSQL keeps its files. [default: $XDG_DATA_HOME/isochrone/collector]",
)
@click.option(
    "--log-format",
    envvar="ISOCHRONE_LOG_FORMAT",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    show_default=True,
    help="How to log to stderr.",
)
def serve(listen: str, database_url: str | None, data_dir: Path | None, log_format: logs.Format) -> None:
    """Serve agents, readers and operators until stopped.

    Once it serves, one line of JSON says so on stdout when that is not a terminal.

    \b
    Example:
      isochrone-collector serve --listen 127.0.0.1:4600 --database-url postgresql://isochrone@db/isochrone
    """
    chosen = settings.check(listen=listen, database_url=database_url, data_dir=data_dir, environment=os.environ)
    logs.set_up(log_format)
    from isochrone_collector import server  # noqa: PLC0415  # half a second that no other command should wait

    asyncio.run(server.serve(chosen, _announce))


def _announce(ready: Mapping[str, str]) -> None:
    if not sys.stdout.isatty():
        click.echo(json.dumps({"ready": True, **ready}))
