"""`isochrone explain`: the decision behind a route table."""

import click

from isochrone_client import completion, terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import routes as route_pages
from isochrone_client.terminal import Output

_FOR_PROGRAMS = "json"


@click.command(
    "explain",
    epilog=options.example("isochrone explain us-east-2 chat", "isochrone explain us-east-2 chat --output json"),
)
@click.argument("region", shell_complete=completion.regions)
@click.argument("route")
@click.option(
    "--generation",
    type=click.IntRange(min=1),
    default=None,
    metavar="GENERATION",
    help="The table to explain.  [default: the newest]",
)
@options.reading
@options.client
def explain(*, client: ObservatoryClient, output: Output, region: str, route: str, generation: int | None) -> None:
    """Show the decision behind the table of ROUTE in REGION.

    The collector repeats the decision from the inputs that are stored with the table, lists each step, and compares the
    result byte for byte; the exit code is 1 if it differs. json also has the inputs and the previous state.
    """
    answer = client.explain_route(region, route, generation=generation or 0)
    if output.format == _FOR_PROGRAMS:
        terminal.write(route_pages.document(answer), output)
    else:
        terminal.write(route_pages.explanation_page(answer, now_at=now_at()), output)
    route_pages.require_replay(answer)
