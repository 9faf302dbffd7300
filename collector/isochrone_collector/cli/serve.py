"""`isochrone-collector serve`: the collector itself."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from isochrone_collector import durations, settings
from isochrone_wire.cli import logs
from isochrone_wire.cli.command_line import log_format_option

_FILE = click.Path(path_type=Path, dir_okay=False)


def _kept(kept_us: int | None) -> str:
    return "forever" if kept_us is None else durations.write(kept_us)


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
@click.option("--tls", envvar="ISOCHRONE_TLS", is_flag=True, help="TLS and credentials on loopback too.")
@click.option("--certificate", envvar="ISOCHRONE_CERTIFICATE", type=_FILE, help="Certificate with its chain, PEM.")
@click.option("--key", envvar="ISOCHRONE_KEY", type=_FILE, help="Its key, PEM, without a passphrase.")
@click.option(
    "--client-ca",
    envvar="ISOCHRONE_CLIENT_CA",
    type=_FILE,
    help="Ask every client for a certificate of these authorities, PEM (mTLS).",
)
@click.option(
    "--http-listen",
    envvar="ISOCHRONE_HTTP_LISTEN",
    default=settings.DEFAULT_HTTP_LISTEN,
    show_default=True,
    help="Where route tables are served over HTTP; port 0 takes a free one, `off` is none.",
)
@click.option(
    "--metrics-listen",
    envvar="ISOCHRONE_METRICS_LISTEN",
    default=f"127.0.0.1:{settings.METRICS_PORT}",
    show_default=True,
    help="Where Prometheus scrapes /metrics, on this machine only; port 0 takes a free one, `off` is none.",
)
@click.option(
    "--keep-samples",
    envvar="ISOCHRONE_KEEP_SAMPLES",
    default=_kept(settings.RetentionPeriods().samples_us),
    show_default=True,
    help="How long samples are kept, in whole days; `forever` or 0 is for good.",
)
@click.option(
    "--keep-hours",
    envvar="ISOCHRONE_KEEP_HOURS",
    default=_kept(settings.RetentionPeriods().hours_us),
    show_default=True,
    help="How long summaries of hours are kept.",
)
@click.option(
    "--keep-days",
    envvar="ISOCHRONE_KEEP_DAYS",
    default=_kept(settings.RetentionPeriods().days_us),
    show_default=True,
    help="How long summaries of days are kept.",
)
@click.option(
    "--question-timeout",
    envvar="ISOCHRONE_QUESTION_TIMEOUT",
    default=durations.write(settings.DEFAULT_QUESTION_TIMEOUT_US),
    show_default=True,
    help="How long the database may take for one question of a reader.",
)
@click.option("--alert-url", envvar="ISOCHRONE_ALERT_URL", help="Webhook that is told of alerts, http or https.")
@click.option(
    "--alert-secret-file",
    envvar="ISOCHRONE_ALERT_SECRET_FILE",
    type=_FILE,
    help="Secret that alerts are signed with, as `alerts secret` makes it; or ISOCHRONE_ALERT_SECRET.",
)
@log_format_option
def serve(log_format: logs.Format, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Serve agents, readers and operators until stopped.

    On loopback plain text is spoken and every process of this machine is an operator. On any other address, or with
    --tls, it is TLS, and everybody needs a credential; without --certificate and --key a certificate is made once.

    Once it serves, one line of JSON says so on stdout when that is not a terminal.

    \b
    Example:
      isochrone-collector serve --listen 127.0.0.1:4600 --database-url postgresql://isochrone@db/isochrone
    """
    chosen = settings.check(**told, environment=os.environ)
    logs.set_up(log_format)
    # Whoever speaks nonsense to the port would else write lines of its own into our log.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from isochrone_collector.server import serve as server  # noqa: PLC0415  # half a second that no other command should wait

    asyncio.run(server.serve(chosen, _announce))


def _announce(ready: Mapping[str, str]) -> None:
    if not sys.stdout.isatty():
        click.echo(json.dumps({"ready": True, **ready}))
