"""`isochrone targets`: what the plan in force measures."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.pages import targets as target_pages
from isochrone_client.terminal import Output


@click.command("targets", epilog=options.example("isochrone targets --output json"))
@options.reading
@options.verdict
def targets(*, collector: Collector, timeout_us: int, output: Output) -> None:
    """List the targets that are being measured."""
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.list_targets()
    terminal.write(target_pages.page(answer), output)
    target_pages.require_targets(answer)
