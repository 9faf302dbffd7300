"""`isochrone incidents`: failing and throttled targets; one of them in detail."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import alerts as pages
from isochrone_client.terminal import Output
from isochrone_client.window import parse_window


@click.command(
    "incidents",
    epilog=options.example(
        "isochrone incidents",
        "isochrone incidents --past --window 7d",
    ),
)
@click.argument("incident", required=False, metavar="[ID]")
@click.option("--past", is_flag=True, help="Also those of the window that are over.")
@options.window
@options.reading
def incidents(
    *, collector: Collector, timeout_us: int, output: Output, incident: str | None, past: bool, window: str
) -> None:
    """Show the targets that fail or are throttled now: since when, from where, and how.

    A target fails from a region after three failed rounds in a row, or after two at two vantages; a vantage that fails
    at everything accuses no target. With the ID of an incident its newest failed samples are shown.
    """
    incident_id = pages.parse_incident_id(incident) if incident else 0
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        span = parse_window(window, now_at=now_at())
        answer = client.list_incidents(span, past=past, incident_id=incident_id)
    if incident_id:
        terminal.write(pages.incident_page(answer.incidents[0]), output)
        return
    terminal.write(pages.incidents_page(answer, past=past), output)
    if not answer.incidents:
        terminal.state_empty(pages.no_incidents(answer, past=past))
