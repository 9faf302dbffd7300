import os
import re
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import AF_INET6
from typing import Any

import click

from isochrone_collector import webhook_signature
from isochrone_collector.cli.operator_client import OperatorClient, duration_option, operator_options
from isochrone_collector.clock import now_at
from isochrone_collector.errors import CollectorError, SettingsError, StartError
from isochrone_collector.settings import alert_secret, parse_address
from isochrone_collector.webhook_signature import Unverified
from isochrone_common.address import Address
from isochrone_common.cli.command_line import example, print_json, table_or_json
from isochrone_wire.insights import Alert
from isochrone_wire.json_format import minute, to_json_value
from isochrone_wire.model import SECOND_US
from isochrone_wire.operations import Silence, SilenceList
from isochrone_wire.text import aligned, printable_json

SCHEMA = "isochrone.silences/1"
Write = Callable[[str], None]

_HEADINGS = ("id", "what", "by", "until (UTC)", "reason")
_ID = re.compile(r"(?:silence_)?([0-7][0-9a-f]{15})")
_MAX_BYTES = 64 * 1024


@click.group(epilog=example("isochrone-collector alerts test"))
def alerts() -> None:
    """Try out how alerts reach receivers, silence and acknowledge them."""


@alerts.command(epilog=example("(umask 077; isochrone-collector alerts secret > alert.secret)"))
def secret() -> None:
    """Print a new secret for signing alerts."""
    click.echo(webhook_signature.format_secret(secrets.token_bytes(32)))


@alerts.command(epilog=example("isochrone-collector alerts test"))
@click.argument("receiver", default="", metavar="[RECEIVER]")
@table_or_json
@operator_options
def test(*, receiver: str, output: str, client: OperatorClient) -> None:
    """Send a test alert to one receiver or to all.

    It prints the result of one attempt. In PagerDuty and Opsgenie the alert is resolved at once.
    """
    alert = client.call("TestAlert", Alert, receiver=receiver)
    if output == "json":
        print_json(to_json_value(alert))
    else:
        for one in alert.deliveries:
            if one.delivered_at is not None:
                click.echo(f"{one.receiver} accepted a test alert")
    refused = [one for one in alert.deliveries if one.delivered_at is None]
    if refused:
        raise CollectorError(
            "; ".join(f"{one.receiver} did not accept a test alert: {one.last_error}" for one in refused),
            hint="it must answer 2xx within 5 s; try `isochrone-collector alerts listen` in its place",
        )


_reason = click.option("--reason", required=True, metavar="TEXT", help="Why; it is listed and recorded.")


@alerts.command(epilog=example("isochrone-collector alerts silence --provider openai --for 2h --reason maintenance"))
@click.option("--target", "targets", multiple=True, metavar="PATTERN", help="Of these targets; repeatable.")
@click.option("--provider", "providers", multiple=True, metavar="PATTERN", help="Of these providers; repeatable.")
@click.option("--region", "regions", multiple=True, metavar="PATTERN", help="From these regions only; repeatable.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Of these kinds, such as drift; repeatable.")
@duration_option("--for", "duration_us", "1h", "How long, up to 366d.")
@_reason
@table_or_json
@operator_options
def silence(*, output: str, client: OperatorClient, **more: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Hold alerts back for a time.

    Alerts that match a pattern of each option given are stored, but not sent. Problems that last on when the silence
    ends are sent then. The end of a problem that was sent before is sent at once.
    """
    made = client.call("AddSilence", Silence, **more)
    _print_silence(made, output, f"{made.name} holds {_what(made)} until {minute(made.until_at)} UTC")


@alerts.command(epilog=example("isochrone-collector alerts acknowledge incident_288a8efa7ab91175 --reason 'on it'"))
@click.argument("problem", metavar="ID")
@duration_option("--for", "duration_us", "8h", "How long, up to 366d.")
@_reason
@table_or_json
@operator_options
def acknowledge(*, problem: str, duration_us: int, reason: str, output: str, client: OperatorClient) -> None:
    """Acknowledge a problem: an incident, or the alert that began it.

    It is sent to receivers as acknowledged, and not repeated for the time. Its escalations and its end are sent.
    """
    made = client.call("AcknowledgeAlert", Silence, id=problem, duration_us=duration_us, reason=reason)
    _print_silence(made, output, f"{made.name} acknowledges {_what(made)} until {minute(made.until_at)} UTC")


@alerts.command(epilog=example("isochrone-collector alerts silences"))
@click.option("--past", is_flag=True, help="Also those that have ended.")
@table_or_json
@operator_options
def silences(*, past: bool, output: str, client: OperatorClient) -> None:
    """List silences and acknowledgements, newest first."""
    found = client.call("ListSilences", SilenceList, past=past).silences
    if output == "json":
        print_json({"schema": SCHEMA, "silences": [to_json_value(one) for one in found]})
        return
    click.echo(aligned([_HEADINGS, *(_row(one) for one in found)]) if found else "none")


@alerts.command(epilog=example("isochrone-collector alerts unsilence silence_288a8efa7ab91175"))
@click.argument("name", metavar="ID")
@table_or_json
@operator_options
def unsilence(*, name: str, output: str, client: OperatorClient) -> None:
    """End a silence or an acknowledgement before its time."""
    found = _ID.fullmatch(name)
    if found is None:
        raise SettingsError(f"{name!r} is not the id of a silence", hint="`alerts silences` lists them")
    ended = client.call("EndSilence", Silence, id=int(found[1], 16))
    _print_silence(ended, output, f"{ended.name} has ended")


@alerts.command(
    epilog=example(
        "isochrone-collector alerts listen --alert-secret-file alert.secret",
        "isochrone-collector serve --alert-url http://127.0.0.1:4670/ --alert-secret-file alert.secret",
    )
)
@click.option(
    "--listen",
    default="127.0.0.1:4670",
    show_default=True,
    metavar="HOST:PORT",
    help="Address; port 0 takes a free one.",
)
@click.option(
    "--alert-secret-file",
    envvar="ISOCHRONE_ALERT_SECRET_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the secret that `serve` uses; or set ISOCHRONE_ALERT_SECRET.",
)
def listen(*, listen: str, alert_secret_file: Path | None) -> None:
    """Receive alerts, verify them and print each as a line of JSON.

    It stands in for a webhook and shows what one would receive.
    """
    known = alert_secret(alert_secret_file, os.environ)
    if known is None:
        raise SettingsError(
            "no secret to verify alerts with", hint="pass --alert-secret-file FILE, or set ISOCHRONE_ALERT_SECRET"
        )
    _receive(parse_address(listen), known, print_alert=click.echo, note=lambda line: click.echo(line, err=True))


def _receive(listen: Address, secret: bytes, *, print_alert: Write, note: Write) -> None:
    """Receive until interrupted: print verified alerts, note everything else. Raises `StartError`."""
    seen: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_POST(self) -> None:
            """Take an alert, or refuse it."""
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > _MAX_BYTES:
                self._refuse(HTTPStatus.LENGTH_REQUIRED, f"a content-length of at most {_MAX_BYTES} is needed")
                return
            body = self.rfile.read(int(length))
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                message = webhook_signature.verify(secret, headers, body, now_s=now_at() // SECOND_US)
            except Unverified as error:
                self._refuse(HTTPStatus.UNAUTHORIZED, str(error))
                return
            if message not in seen:
                seen.add(message)
                print_alert(printable_json(body.decode(errors="replace")))
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def _refuse(self, status: HTTPStatus, reason: str) -> None:
            note(f"refused a message: {reason}")
            self.send_error(status, reason)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the signature is http.server's
            """Log nothing: refusals are noted above."""

    with _bound(listen, Handler) as server:
        note(f"receiving alerts at http://{Address(listen.host, server.server_port)}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _bound(listen: Address, handler: type[BaseHTTPRequestHandler]) -> HTTPServer:
    class Server(HTTPServer):
        if ":" in listen.host:
            address_family = AF_INET6

    try:
        return Server((listen.host, listen.port), handler)
    except OSError as error:
        raise StartError(f"cannot listen on {listen}: {error.strerror}", hint="choose another --listen") from error


def _print_silence(silence: Silence, output: str, sentence: str) -> None:
    if output == "json":
        print_json(to_json_value(silence))
    else:
        click.echo(sentence)


def _row(one: Silence) -> tuple[str, ...]:
    ended = f"ended {minute(one.ended_at)} by {one.ended_by}" if one.ended_at is not None else minute(one.until_at)
    if one.ended_at is None and not one.is_in_force(now_at()):
        ended = f"expired {ended}"
    return (one.name, _what(one), one.created_by, ended, one.reason)


def _what(one: Silence) -> str:
    return f"{one.subject} ({one.thread})" if one.thread else one.patterns
