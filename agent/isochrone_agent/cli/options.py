from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import click

from isochrone_common.cli.command_line import Choice


def _option(flag: str, *standard: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: ANN401  # as click.option
    """An option with an environment variable `ISOCHRONE_…` of the same name, and perhaps a `standard` one."""
    variable = f"ISOCHRONE_{flag.removeprefix('--').replace('-', '_').upper()}"
    return click.option(flag, envvar=[variable, *standard], **more)


connect_to = _option(
    "--connect-to",
    multiple=True,
    metavar="HOST:PORT:ADDRESS:PORT",
    help="Redirect connections for HOST:PORT to ADDRESS:PORT, with the same URL, Host header and TLS name. Repeatable.",
)
family = _option(
    "--family",
    type=Choice(["any", "4", "6"]),
    default="any",
    show_default=True,
    help="IP version to connect with.",
)
ca_file = _option(
    "--ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Trust these certificate authorities (PEM) in addition to the system's, for your own servers.",
)
data_dir = _option(
    "--data-dir",
    metavar="FOLDER",
    help="Folder of identity and spool.  [default: ~/.local/share/isochrone/agent/ and --vantage, else `default`]",
)
_settings = click.option(
    "--settings",
    "settings_file",
    envvar="ISOCHRONE_SETTINGS",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with these options as keys (data_dir for --data-dir); flags and variables override it.",
)
_RUNNING = (
    _settings,
    _option("--vantage", metavar="NAME", help="Name of this vantage, such as sg-1.  [default: as joined]"),
    _option("--region", metavar="NAME", help="Region of this vantage, such as ap-southeast-1.  [default: as joined]"),
    _option(
        "--collector",
        metavar="HOST:PORT",
        help="The collector, also unix:PATH.  [default: as joined, else the Unix socket of this user's collector]",
    ),
    _option(
        "--plan",
        metavar="FILE",
        help="Run this plan file without a collector, for --metrics-listen; --vantage and --region are then optional.",
    ),
    data_dir,
    _option("--credentials", metavar="FILE", help="TOML file with the sources of keys and the hosts allowed for each."),
    _option(
        "--policy",
        metavar="FILE",
        help="TOML file that limits hosts, addresses and volume, whatever a plan contains.  "
        "[default: policy.toml in the data folder, if it exists]",
    ),
    _option("--concurrency", metavar="N", type=click.IntRange(1, 1000), help="Maximum probes in flight.  [default: 8]"),
    connect_to,
    family,
    ca_file,
    _option(
        "--spool-limit",
        metavar="SIZE",
        help="Maximum size of the spool; beyond it the oldest samples are dropped.  [default: 100MB]",
    ),
    _option(
        "--keep-delivered",
        metavar="SIZE",
        help="Part of the spool for copies of delivered batches, which are sent again if the collector's database was "
        "restored from a backup; 0 for none.  [default: 20MB]",
    ),
    _option(
        "--drain",
        type=Choice(["newest", "oldest"]),
        help="Order of delivery after an outage; with newest, the backlog is interleaved.  [default: newest]",
    ),
    _option(
        "--metrics-listen",
        metavar="HOST:PORT",
        help="Address of /metrics for Prometheus, such as 127.0.0.1:4691; it needs no credential.  [default: off]",
    ),
    _option(
        "--otlp-endpoint",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        metavar="URL",
        help="Export metrics and a trace per probe to this receiver of OTLP over HTTP, such as http://127.0.0.1:4318; "
        "takes the extra `otel`.  [default: OTEL_EXPORTER_OTLP_ENDPOINT, else off]",
    ),
)


def running(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `run`: `settings_file` and those that `load_settings` takes."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_RUNNING), function)
