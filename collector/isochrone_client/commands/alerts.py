"""`isochrone alerts`: alerts and their delivery."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import alerts as alert_pages
from isochrone_client.terminal import Output
from isochrone_client.window import parse_window


@click.command("alerts", epilog=options.example("isochrone alerts", "isochrone alerts --window 7d"))
@options.window
@options.reading
def alerts(*, collector: Collector, timeout_us: int, output: Output, window: str) -> None:
    """Show the alerts that were raised, the newest first.

    They report incidents of targets, lasting changes, vantages that are absent, and their return. The collector sends
    them to its receivers, with retries for a day, and stores them in any case.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.list_alerts(parse_window(window, now_at=now_at()))
    terminal.write(alert_pages.page(answer), output)
    if not answer.alerts:
        terminal.state_empty(alert_pages.empty_message(answer))
