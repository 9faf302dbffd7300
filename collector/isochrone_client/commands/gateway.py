"""`isochrone gateway`: a program beside a service that routes the requests of any client."""

import asyncio
from typing import Any

import click

from isochrone_client.address import Collector
from isochrone_client.commands import options
from isochrone_client.errors import AddressError
from isochrone_common.address import parse_address
from isochrone_common.cli.command_line import log_format_option
from isochrone_common.cli.service import LogFormat, set_up_logs
from isochrone_common.trust import Trust

_PORT = 4000


@options.command(
    "gateway",
    "isochrone gateway --region us-east-2 --route chat",
    "ISOCHRONE_GATEWAY_TOKEN=… isochrone gateway --region us-east-2 --listen 0.0.0.0:4000",
)
@options.region_option("--region", required=True, help="The region that requests are sent from.")
@click.option(
    "--route",
    "routes",
    multiple=True,
    metavar="ROUTE",
    help="Serve this route; several times for several.  [default: all]",
)
@click.option(
    "--listen",
    default=f"127.0.0.1:{_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where callers send requests.",
)
@click.option(
    "--token",
    envvar="ISOCHRONE_GATEWAY_TOKEN",
    show_envvar=True,
    default="",
    metavar="TOKEN",
    help="The API key of callers, which is required unless only this machine reaches the gateway. `ps` shows an option "
    "to others, but not the variable.",
)
@click.option(
    "--provider-host",
    "hosts",
    multiple=True,
    metavar="HOST",
    callback=lambda _context, _parameter, hosts: hosts or None,
    help="Send requests and keys to this host only; several times for several.  [default: every host of a table]",
)
@click.option(
    "--hedge-ratio",
    type=click.FloatRange(0, 1),
    default=0.06,
    show_default=True,
    help="The largest share of second requests; 0 for none.",
)
@click.option(
    "--hedge-effects", is_flag=True, help="Also hedge requests with effects, such as tools, if twice is harmless."
)
@click.option(
    "--first-token",
    "first_token_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Try the next member if there is no content by then.  [default: by the member's tail in the table]",
)
@click.option(
    "--deadline",
    "deadline_s",
    type=click.FloatRange(0, 600, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="The time of all members together until the answer begins.",
)
@click.option(
    "--failover-on-refusals/--no-failover-on-refusals",
    default=True,
    show_default=True,
    help="Try the next member after a 401, 402, 403, 404 or 408, too.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="The most connections of callers at once; others are closed.",
)
@click.option(
    "--request-timeout",
    "request_s",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The time in which the head of a request has to arrive, and then its body.",
)
@log_format_option
@options.addressing
def gateway(
    *,
    collector: Collector,
    region: str,
    routes: tuple[str, ...],
    listen: str,
    token: str,
    max_connections: int,
    request_s: float,
    log_format: LogFormat,
    **routing: Any,  # noqa: ANN401  # options of `Routes`
) -> None:
    """Route requests of any client by the tables of a region, as the libraries for Python and TypeScript do.

    It speaks the APIs of OpenAI (chat completions, responses) and Anthropic (messages). The model of a request is the
    name of a route; the gateway replaces it, address and key by those of a member, fails over and hedges until the
    first content, and passes the stream on as it arrives. The key of the credential `deepseek` is its variable
    DEEPSEEK_API_KEY. It runs beside your service: the collector sees no requests.

    Ctrl-C ends it after the open streams, a second Ctrl-C at once.
    """
    with options.needing("isochrone gateway", "starlette", "uvicorn", extra="gateway"):
        from isochrone.gateway import access, app, server  # noqa: PLC0415  # an extra
    from isochrone.routing import Routes  # noqa: PLC0415  # as above

    try:
        address = parse_address(listen, default_port=_PORT)
        allowed = access.access_at(address, token)
        listener = server.bind(address)
    except ValueError as error:
        raise AddressError(str(error), hint="set ISOCHRONE_GATEWAY_TOKEN, or listen on 127.0.0.1") from error
    except OSError as error:
        raise AddressError(f"cannot listen on {listen}: {error.strerror}", hint="choose another --listen") from error
    identity = collector.identity
    trust = identity.trust if identity else Trust(tls=False)
    scheme = "https://" if trust.tls else "" if collector.address.is_socket else "http://"
    set_up_logs(log_format)
    found = Routes(
        f"{scheme}{collector.address}",
        region,
        token=identity.credential if identity and trust.tls else None,
        trust=trust,
        on_event=lambda event: app.EVENTS.labels(event).inc(),
        metrics=True,
        **routing,
    )
    with found:
        engine = app.GatewayEngine(found, found.new_pool(), served=routes)
        asyncio.run(server.serve(engine, listener, allowed, max_connections, request_s))
