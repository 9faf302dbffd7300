import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from isochrone_collector.process_tuning import raise_file_limit
from isochrone_collector.server.listen_check import check_listen, check_unix_socket
from isochrone_collector.settings import Options, check
from isochrone_common.cli.command_line import example, log_format_option
from isochrone_common.cli.service import LogFormat, set_up_logs

_EXAMPLE = "isochrone-collector serve --listen 127.0.0.1:4600 --database-url postgresql://isochrone@db/isochrone"
_PERCENT = click.FloatRange(0, 50)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `settings.Options`, in their order."""
    for one in reversed(fields(Options)):
        is_many, is_flag = isinstance(one.default, tuple), isinstance(one.default, bool)
        plural = ("es" if one.name.endswith("s") else "s") if is_many else ""
        kinds = {Path | None: click.Path(path_type=Path, dir_okay=one.name == "data_dir"), float: _PERCENT}
        command = click.option(
            f"--{one.name.replace('_', '-')}",
            envvar=f"ISOCHRONE_{one.name}{plural}".upper(),
            type=kinds.get(one.type),
            is_flag=is_flag,
            multiple=is_many,
            default=None if is_many else one.default,
            show_default=isinstance(one.default, str) or one.type is float,
            **one.metadata,
        )(command)
    return command


@click.command(epilog=example(_EXAMPLE))
@_options
@log_format_option
def serve(log_format: LogFormat, **given: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Serve agents, readers and operators until stopped.

    Commands and agents of the same user call it over a Unix socket, without a credential. On --listen it uses TLS and
    requires a credential; without --certificate and --key it creates a certificate once. HTTP requires a credential
    too, and uses TLS unless both addresses are on loopback.

    When it is ready, it prints one line of JSON on stdout, unless that is a terminal.
    """
    chosen = check(os.environ, Options(**given))
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
