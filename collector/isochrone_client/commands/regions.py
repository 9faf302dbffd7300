"""`isochrone regions`: who measures, from where, and how it is doing."""

import click

from isochrone_client import terminal
from isochrone_client.address import Whom
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.pages import regions as region_pages


@click.command("regions", epilog=options.example("isochrone regions", "isochrone regions --output json"))
@options.reading
def regions(*, collector: Whom, timeout_us: int, output: str) -> None:
    """Show which vantages are online, their clocks, spools and plans.

    Online means that samples arrive. A late vantage broke its promise of the next heartbeat; a silent one is heard and
    delivers nothing; an empty one has nothing to probe. Samples that are neither stored nor waiting nor counted as
    dropped are lost, and should not exist.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.list_vantages()
    terminal.write(region_pages.page(answer), output)
    region_pages.require_online(answer)
