"""`isochrone regions`: the nearest region of each provider."""

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.pages import regions as pages
from isochrone_client.terminal import Output
from isochrone_wire.answers import Metric, Selection


@click.command("regions", epilog=options.example("isochrone regions", "isochrone regions --metric e2e --window 7d"))
# What the command shows in any case.
@click.option("--best", is_flag=True, hidden=True, expose_value=False)
@options.metric_option("The metric to compare.")
@options.selecting
@options.estimand
def regions(*, client: ObservatoryClient, output: Output, selection: Selection, metric: str) -> None:
    """Show the nearest region of each provider, and how much slower the others are.

    That is the region from which its targets answer first; every other region is compared with it, paired by target and
    round. Only targets that all of these regions measured are compared.
    """
    answer = client.get_region_costs(selection, metric=Metric(metric))
    terminal.write(pages.best_page(answer, metric=Metric(metric)), output)
    pages.require_best(answer)
