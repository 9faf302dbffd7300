from pathlib import Path

import click

from isochrone_collector.cli.operator_client import data_dir_option, duration_option
from isochrone_collector.clock import now_at
from isochrone_collector.server.certificates import rotate as make_next
from isochrone_common.cli.command_line import example
from isochrone_common.credentials import format_fingerprint
from isochrone_wire.json_format import rfc3339

_EXAMPLE = example("isochrone-collector certificate rotate --grace 7d")


@click.group(epilog=_EXAMPLE)
def certificate() -> None:
    """Replace the collector's own certificate."""


@certificate.command(epilog=_EXAMPLE)
@duration_option(
    "--grace", "grace_us", "7d", "How long the next certificate is announced before the collector presents it."
)
@click.option("--now", is_flag=True, help="Present it at once. Those that have not heard of it must join again.")
@data_dir_option
def rotate(*, grace_us: int, now: bool, data_dir: Path) -> None:
    """Announce a new certificate, and switch to it later.

    Run it on the collector's host as the collector's user. Agents pin the next certificate with their next heartbeat,
    and commands when one of them runs; what does neither during the grace must join again. If a certificate is
    announced already, only the instant of the switch changes: `--now` then switches at once.
    """
    switch_at = now_at() + (0 if now else grace_us)
    fingerprint, is_new = make_next(data_dir, switch_at=switch_at)
    click.echo(f"next certificate: {format_fingerprint(fingerprint)}" + ("" if is_new else " (announced before)"))
    click.echo(
        "the collector presents it within seconds" if now else f"the collector presents it from {rfc3339(switch_at)}"
    )
