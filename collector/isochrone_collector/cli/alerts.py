"""`isochrone-collector alerts`: make the secret of alerts, see them arrive, and try whether they do."""

import json
import os
import secrets
from pathlib import Path

import click

from isochrone_collector import webhook_signature
from isochrone_collector.cli import alert_receiver
from isochrone_collector.cli.options import reaching
from isochrone_collector.cli.plan_change import output_option
from isochrone_collector.cli.plan_client import Asking
from isochrone_collector.errors import CollectorError, SettingsError
from isochrone_collector.settings import alert_secret, parse_address
from isochrone_wire.json_format import to_json_value

_SECRET_BYTES = 32
_DEFAULT_LISTEN = "127.0.0.1:4670"


@click.group()
def alerts() -> None:
    """Try how alerts reach a webhook.

    \b
    Example:
      isochrone-collector alerts test
    """


@alerts.command()
def secret() -> None:
    """Print a new secret for signing alerts.

    \b
    Example:
      (umask 077; isochrone-collector alerts secret > alert.secret)
    """
    click.echo(webhook_signature.written(secrets.token_bytes(_SECRET_BYTES)))


@alerts.command()
@output_option
@reaching
def test(*, output: str, collector: str | None, identity: Path | None) -> None:
    """Send a test alert to the webhook now and say what came of it.

    \b
    Example:
      isochrone-collector alerts test
    """
    alert = Asking(collector=collector, identity=identity).test_alert()
    if output == "json":
        click.echo(json.dumps(to_json_value(alert), indent=2, ensure_ascii=False))
    elif alert.delivered_at is not None:
        click.echo("the webhook took a test alert")
    if alert.delivered_at is None:
        raise CollectorError(
            f"the webhook did not take a test alert: {alert.last_error}",
            hint="it must answer 2xx within 5 s; try `isochrone-collector alerts listen` in its place",
        )


@alerts.command()
@click.option(
    "--listen",
    default=_DEFAULT_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Address; port 0 takes a free one.",
)
@click.option(
    "--alert-secret-file",
    envvar="ISOCHRONE_ALERT_SECRET_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The secret that `serve` was given; or ISOCHRONE_ALERT_SECRET.",
)
def listen(*, listen: str, alert_secret_file: Path | None) -> None:
    """Receive alerts, verify them and print each as a line of JSON.

    It stands in for a webhook, so that you see at once what one would get.

    \b
    Example:
      isochrone-collector alerts listen --alert-secret-file alert.secret
      isochrone-collector serve --alert-url http://127.0.0.1:4670/ --alert-secret-file alert.secret
    """
    known = alert_secret(alert_secret_file, os.environ)
    if known is None:
        raise SettingsError(
            "no secret to verify alerts with", hint="say --alert-secret-file FILE, or set ISOCHRONE_ALERT_SECRET"
        )
    alert_receiver.receive(parse_address(listen), known, say=click.echo, note=lambda line: click.echo(line, err=True))
