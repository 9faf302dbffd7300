"""`isochrone routes history`: the changes of a window."""

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import routes as route_pages
from isochrone_client.terminal import Output
from isochrone_client.window import parse_window
from isochrone_wire.answers import Selection


@click.command("history", epilog=options.example("isochrone routes history --window 24h"))
@options.regions
@options.route
@options.window
@options.reading
@options.client
def history(*, client: ObservatoryClient, output: Output, regions: tuple[str, ...], route: str, window: str) -> None:
    """Show switches, freezes and their ends, newest first.

    New plans and gradual changes of weights are included; tables that were only refreshed are left out.
    """
    now = now_at()
    selection = Selection(window=parse_window(window, now_at=now), regions=regions)
    answer = client.list_route_events(selection, route=route)
    terminal.write(route_pages.events_page(answer, now_at=now), output)
    if not answer.events:
        terminal.state_empty(route_pages.empty_message(answer.window))
