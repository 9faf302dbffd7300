"""`isochrone-collector serve`: the collector itself."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from isochrone_collector import settings
from isochrone_collector.process_tuning import raise_file_limit
from isochrone_collector.server.listen_check import check_listen, check_unix_socket
from isochrone_common.cli.command_line import example, log_format_option
from isochrone_common.cli.service import LogFormat, set_up_logs
from isochrone_wire import durations

_EXAMPLE = "isochrone-collector serve --listen 127.0.0.1:4600 --database-url postgresql://isochrone@db/isochrone"
_FILE = click.Path(path_type=Path, dir_okay=False)


def _kept(kept_us: int | None) -> str:
    return "forever" if kept_us is None else durations.write(kept_us)


@click.command(epilog=example(_EXAMPLE))
@click.option(
    "--listen",
    envvar="ISOCHRONE_LISTEN",
    default=settings.DEFAULT_LISTEN,
    show_default=True,
    help="Address; port 0 takes a free one.",
)
@click.option(
    "--unix-socket",
    envvar="ISOCHRONE_UNIX_SOCKET",
    metavar="PATH",
    help="Unix socket on which this user's commands and agents need no credential; `off` for none.  "
    "[default: collector.sock in the data folder]",
)
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", help="PostgreSQL to use instead of the embedded one.")
@click.option(
    "--data-dir",
    envvar="ISOCHRONE_DATA_DIR",
    type=click.Path(path_type=Path),
    help="Data folder of the embedded PostgreSQL.  [default: $XDG_DATA_HOME/isochrone/collector]",
)
@click.option("--tls", envvar="ISOCHRONE_TLS", is_flag=True, help="TLS for HTTP on loopback too.")
@click.option(
    "--trust-loopback",
    envvar="ISOCHRONE_TRUST_LOOPBACK",
    is_flag=True,
    help="No TLS and no credentials on loopback: every process of this machine is an operator.",
)
@click.option("--certificate", envvar="ISOCHRONE_CERTIFICATE", type=_FILE, help="Certificate with its chain, PEM.")
@click.option("--key", envvar="ISOCHRONE_KEY", type=_FILE, help="Its key, PEM, without a passphrase.")
@click.option(
    "--client-ca",
    envvar="ISOCHRONE_CLIENT_CA",
    type=_FILE,
    help="Require a client certificate of these authorities, PEM (mTLS).",
)
@click.option(
    "--http-listen",
    envvar="ISOCHRONE_HTTP_LISTEN",
    help="Address for HTTP: readers, the page, route tables, /metrics; port 0 takes a free one, `off` disables it.  "
    "[default: the host of --listen, port 4680]",
)
@click.option(
    "--http-host",
    envvar="ISOCHRONE_HTTP_HOSTS",
    multiple=True,
    metavar="NAME",
    help="Further name in the Host header that HTTP without TLS accepts; by default localhost and the address.",
)
@click.option(
    "--public-page",
    envvar="ISOCHRONE_PUBLIC_PAGE",
    is_flag=True,
    help="Status of all targets (/status, /v1/status) and badges without a login, for the public.",
)
@click.option(
    "--public-target",
    envvar="ISOCHRONE_PUBLIC_TARGETS",
    multiple=True,
    metavar="PATTERN",
    help="Target, or shell-style pattern of targets, that the public page has; by default all.",
)
@click.option(
    "--private-target",
    envvar="ISOCHRONE_PRIVATE_TARGETS",
    multiple=True,
    metavar="PATTERN",
    help="Target, or pattern, that the public page does not have, also if --public-target matches it.",
)
@click.option(
    "--proxy-user-header",
    envvar="ISOCHRONE_PROXY_USER_HEADER",
    metavar="NAME",
    help="Header in which a reverse proxy names the user it has authenticated, such as X-Forwarded-User; the user may "
    "read. Requires --proxy-secret-file or --proxy-address.",
)
@click.option(
    "--proxy-secret-file",
    envvar="ISOCHRONE_PROXY_SECRET_FILE",
    type=_FILE,
    help="Secret that the proxy sends as X-Isochrone-Proxy-Secret; or set ISOCHRONE_PROXY_SECRET.",
)
@click.option(
    "--proxy-address",
    envvar="ISOCHRONE_PROXY_ADDRESSES",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of the proxy; requests from others have no user.",
)
@click.option(
    "--keep-samples",
    envvar="ISOCHRONE_KEEP_SAMPLES",
    default=_kept(settings.RetentionPeriods().samples_us),
    show_default=True,
    help="How long samples are kept, in whole days; `forever` or 0 keeps all.",
)
@click.option(
    "--keep-hours",
    envvar="ISOCHRONE_KEEP_HOURS",
    default=_kept(settings.RetentionPeriods().hours_us),
    show_default=True,
    help="How long hourly summaries are kept.",
)
@click.option(
    "--keep-days",
    envvar="ISOCHRONE_KEEP_DAYS",
    default=_kept(settings.RetentionPeriods().days_us),
    show_default=True,
    help="How long daily summaries are kept.",
)
@click.option(
    "--keep-incidents",
    envvar="ISOCHRONE_KEEP_INCIDENTS",
    default=_kept(settings.RetentionPeriods().incidents_us),
    show_default=True,
    help="How long incidents that are over, delivered alerts and past silences are kept.",
)
@click.option(
    "--question-timeout",
    envvar="ISOCHRONE_QUESTION_TIMEOUT",
    default=durations.write(settings.DEFAULT_QUESTION_TIMEOUT_US),
    show_default=True,
    help="Time limit of the database for one query of a reader.",
)
@click.option(
    "--disk-low",
    envvar="ISOCHRONE_DISK_LOW",
    type=click.FloatRange(0, 50),
    default=settings.DEFAULT_DISK_LOW_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="Free share of the embedded PostgreSQL's disk, at most 16 GiB, below which there is an alert. Below half of "
    "it backlogs are refused, below a quarter all pushes. 0 for no limits.",
)
@click.option(
    "--region-location",
    envvar="ISOCHRONE_REGION_LOCATIONS",
    multiple=True,
    metavar="NAME=LAT,LON",
    help="Place of a region in degrees, for the map; those of well-known cloud regions are known.",
)
@click.option("--alert-url", envvar="ISOCHRONE_ALERT_URL", help="Webhook that receives alerts, http or https.")
@click.option(
    "--alert-secret-file",
    envvar="ISOCHRONE_ALERT_SECRET_FILE",
    type=_FILE,
    help="Secret that signs alerts, from `alerts secret`; or set ISOCHRONE_ALERT_SECRET.",
)
@click.option(
    "--alert-receivers",
    envvar="ISOCHRONE_ALERT_RECEIVERS",
    type=_FILE,
    help="YAML file with further receivers of alerts: Slack, PagerDuty, Opsgenie, webhooks.",
)
@log_format_option
def serve(log_format: LogFormat, **given: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Serve agents, readers and operators until stopped.

    Commands and agents of the same user call it over a Unix socket, without a credential. On --listen it uses TLS and
    requires a credential; without --certificate and --key it creates a certificate once. HTTP requires a credential
    too, and uses TLS unless both addresses are on loopback.

    When it is ready, it prints one line of JSON on stdout, unless that is a terminal.
    """
    chosen = settings.check(**given, environment=os.environ)
    set_up_logs(log_format)
    # Clients that send garbage to the port would otherwise cause log lines of gRPC.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    raise_file_limit()
    check_listen(chosen.listen)
    if chosen.unix_socket is not None and chosen.unix_socket_required:
        check_unix_socket(chosen.unix_socket)
    from isochrone_collector.server import serve as server  # noqa: PLC0415  # half a second that other commands do not need

    asyncio.run(server.serve(chosen, _announce))


def _announce(ready: Mapping[str, str]) -> None:
    if not sys.stdout.isatty():
        click.echo(json.dumps({"ready": True, **ready}))
