from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.address import DEFAULT_COLLECTOR, Collector
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_common import identity_file
from isochrone_common.address import UNIX, parse_address
from isochrone_common.trust import speaks_tls

_OPERATOR = "operator.json"


@options.command("page", "isochrone page", 'xdg-open "$(isochrone page)"')
@options.asking
def page(*, collector: Collector, timeout_us: int) -> None:
    """Print the address of the live page, with a login where it requires one.

    The link works once, within a minute, for the access of the identity; on the collector's machine for that of its
    user.
    """
    if collector.address.is_socket:
        # The socket needs no credential, and the session of a browser is that of one.
        path = Path(collector.address.host.removeprefix(UNIX)).with_name(_OPERATOR)
        with suppress(OSError, ValueError):
            collector = replace(collector, identity=identity_file.read(path))
    with ReadClient(collector, timeout_us=timeout_us) as client:
        token = client.begin_login()
    address = collector.address
    if address.is_socket:
        address = collector.identity.http_address if collector.identity else parse_address(DEFAULT_COLLECTOR)
    scheme = "https" if speaks_tls(address) else "http"
    click.echo(f"{scheme}://{address}/" + (f"#login={token}" if token else ""))
    if token:
        terminal.remark("the link works once, within a minute")
