"""`isochrone tiers`: what is fast among what costs as much."""

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.pages import leaderboard as tier_pages
from isochrone_client.terminal import Output
from isochrone_wire.answers import Selection


@click.command("tiers", epilog=options.example("isochrone tiers --region us-east-2"))
@options.selecting
@options.estimand
def tiers(
    *,
    collector: Collector,
    timeout_us: int,
    output: Output,
    selection: Selection,
) -> None:
    """Rank targets by median TTFT within their price tier.

    Tiers are by US dollars per million output tokens: free, nearly free (below 0.15), sweet spot (0.15 to 0.30),
    quality first (0.30 to 0.80), premium (from 0.80 on), and unpriced where the plan states no price.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_tiers(selection)
    terminal.write(tier_pages.tiers_page(answer), output)
    tier_pages.require_tiers(answer)
