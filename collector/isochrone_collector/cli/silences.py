"""`isochrone-collector alerts silence`, `silences`, `unsilence` and `acknowledge`."""

import json
import re
from collections.abc import Callable, Sequence

import click

from isochrone_collector.cli.operator_client import OperatorClient, operator_options
from isochrone_collector.clock import now_at
from isochrone_collector.errors import SettingsError
from isochrone_common.cli.command_line import example, table_or_json
from isochrone_wire.durations import parse_us
from isochrone_wire.json_format import minute, to_json_value
from isochrone_wire.operations import Silence
from isochrone_wire.text import aligned

SCHEMA = "isochrone.silences/1"
_HEADINGS = ("id", "what", "by", "until (UTC)", "reason")
_ID = re.compile(r"(?:silence_)?([0-7][0-9a-f]{15})")


def _duration(_context: click.Context, _parameter: click.Parameter, written: str) -> int:
    try:
        return parse_us(written)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _lasting(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--for",
        "duration_us",
        callback=_duration,
        default=default,
        show_default=True,
        metavar="DURATION",
        help="How long, up to 366d.",
    )


_reason = click.option("--reason", required=True, metavar="TEXT", help="Why; it is listed and recorded.")


@click.command(epilog=example("isochrone-collector alerts silence --provider openai --for 2h --reason maintenance"))
@click.option("--target", "targets", multiple=True, metavar="PATTERN", help="Of these targets; repeatable.")
@click.option("--provider", "providers", multiple=True, metavar="PATTERN", help="Of these providers; repeatable.")
@click.option("--region", "regions", multiple=True, metavar="PATTERN", help="From these regions only; repeatable.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Of these kinds, such as drift; repeatable.")
@_lasting("1h")
@_reason
@table_or_json
@operator_options
def silence(
    *,
    targets: Sequence[str],
    providers: Sequence[str],
    regions: Sequence[str],
    kinds: Sequence[str],
    duration_us: int,
    reason: str,
    output: str,
    client: OperatorClient,
) -> None:
    """Hold alerts back for a time.

    Alerts that match a pattern of each option given are stored, but not sent. Problems that last on when the silence
    ends are sent then. The end of a problem that was sent before is sent at once.
    """
    made = client.silence(
        targets=targets, providers=providers, regions=regions, kinds=kinds, duration_us=duration_us, reason=reason
    )
    _print(made, output, f"{made.name} holds {_what(made)} until {minute(made.until_at)} UTC")


@click.command(epilog=example("isochrone-collector alerts acknowledge incident_288a8efa7ab91175 --reason 'on it'"))
@click.argument("problem", metavar="ID")
@_lasting("8h")
@_reason
@table_or_json
@operator_options
def acknowledge(*, problem: str, duration_us: int, reason: str, output: str, client: OperatorClient) -> None:
    """Acknowledge a problem: an incident, or the alert that began it.

    It is sent to receivers as acknowledged, and not repeated for the time. Its escalations and its end are sent.
    """
    made = client.acknowledge(problem, duration_us=duration_us, reason=reason)
    _print(made, output, f"{made.name} acknowledges {_what(made)} until {minute(made.until_at)} UTC")


@click.command(epilog=example("isochrone-collector alerts silences"))
@click.option("--past", is_flag=True, help="Also those that have ended.")
@table_or_json
@operator_options
def silences(*, past: bool, output: str, client: OperatorClient) -> None:
    """List silences and acknowledgements, newest first."""
    found = client.silences(past=past)
    if output == "json":
        click.echo(json.dumps({"schema": SCHEMA, "silences": [to_json_value(one) for one in found]}, indent=2))
        return
    click.echo(aligned([_HEADINGS, *(_row(one) for one in found)]) if found else "none")


@click.command(epilog=example("isochrone-collector alerts unsilence silence_288a8efa7ab91175"))
@click.argument("name", metavar="ID")
@table_or_json
@operator_options
def unsilence(*, name: str, output: str, client: OperatorClient) -> None:
    """End a silence or an acknowledgement before its time."""
    found = _ID.fullmatch(name)
    if found is None:
        raise SettingsError(f"{name!r} is not the id of a silence", hint="`alerts silences` lists them")
    ended = client.end_silence(int(found[1], 16))
    _print(ended, output, f"{ended.name} has ended")


def _print(silence: Silence, output: str, sentence: str) -> None:
    click.echo(json.dumps(to_json_value(silence), indent=2, ensure_ascii=False) if output == "json" else sentence)


def _row(one: Silence) -> tuple[str, ...]:
    ended = f"ended {minute(one.ended_at)} by {one.ended_by}" if one.ended_at is not None else minute(one.until_at)
    if one.ended_at is None and not one.is_in_force(now_at()):
        ended = f"expired {ended}"
    return (one.name, _what(one), one.created_by, ended, one.reason)


def _what(one: Silence) -> str:
    return f"{one.subject} ({one.thread})" if one.thread else one.patterns
