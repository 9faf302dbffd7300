import click

from isochrone_client import terminal
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.formats import between
from isochrone_client.pages import alerts as pages
from isochrone_client.terminal import Output
from isochrone_wire.answers import Selection, Window


@options.command("alerts", "isochrone alerts", "isochrone alerts --window 7d")
@options.window
@options.reading
@options.client
def alerts(*, client: ReadClient, output: Output, window: Window) -> None:
    """Show the alerts that were raised, the newest first.

    They report incidents of targets, lasting changes, vantages that are absent, and their return. The collector sends
    them to its receivers, with retries for a day, and stores them in any case.
    """
    answer = client.list_alerts(window)
    terminal.write(pages.page(answer), output)
    if not answer.alerts:
        terminal.state_empty(pages.empty_message(answer))


@options.command("incidents", "isochrone incidents", "isochrone incidents --past --window 7d")
@click.argument("incident", required=False, metavar="[ID]")
@click.option("--past", is_flag=True, help="Also those of the window that are over.")
@options.window
@options.reading
@options.client
def incidents(*, client: ReadClient, output: Output, incident: str | None, past: bool, window: Window) -> None:
    """Show the targets that fail or are throttled now: since when, from where, and how.

    A target fails from a region after three failed rounds in a row, or after two at two vantages; a vantage that fails
    at everything accuses no target. With the ID of an incident its newest failed samples are shown.
    """
    incident_id = pages.parse_incident_id(incident) if incident else 0
    answer = client.list_incidents(window, past=past, incident_id=incident_id)
    if incident_id:
        terminal.write(pages.incident_page(answer.incidents[0]), output)
        return
    terminal.write(pages.incidents_page(answer, past=past), output)
    if not answer.incidents:
        terminal.state_empty(pages.no_incidents(answer, past=past))


@options.command("drift", "isochrone drift --window 7d")
@options.selecting
def drift(*, client: ReadClient, output: Output, selection: Selection) -> None:
    """Show lasting changes of TTFT and speed, the newest first.

    A change is a new level that lasts for six rounds or more and is not explained by the hour of the day; single slow
    answers and bursts of three do not count. A return to the former level is another change.
    """
    answer = client.list_drift(selection)
    terminal.write(pages.drift_page(answer), output)
    pages.require_watched(answer)
    if not answer.events:
        terminal.state_empty(f"no lasting change between {between(answer.window)}; {pages.watched_summary(answer)}")
        terminal.state_empty(pages.CHANGE)
