"""`isochrone routes`: where to send requests now, its changes, and exports for gateways."""

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import routes as route_pages
from isochrone_client.route_tables import collect_tables
from isochrone_client.terminal import Output
from isochrone_common.cli.command_line import CommandGroup, Entry

COMMANDS = {
    "watch": Entry("isochrone_client.commands.routes.watch:watch", "Show each table as it changes, until interrupted."),
    "history": Entry(
        "isochrone_client.commands.routes.history:history", "Show switches, freezes and their ends, newest first."
    ),
    "export": Entry(
        "isochrone_client.commands.routes.export:export", "Write the tables of a region as a file for a gateway."
    ),
    "kubernetes": Entry(
        "isochrone_client.commands.routes.kubernetes:kubernetes",
        "Make routes of a Kubernetes cluster follow the tables of a region.",
    ),
}
_EXAMPLES = ("isochrone routes", "isochrone routes --region us-east-2 --output json")


@click.group(
    "routes",
    cls=CommandGroup,
    entries=COMMANDS,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",
    epilog=options.example(*_EXAMPLES),
)
@options.regions
@options.route
@options.reading
@options.verdict
@click.pass_context
@options.estimand
@options.client
def routes(
    context: click.Context,
    *,
    client: ObservatoryClient,
    output: Output,
    regions: tuple[str, ...],
    route: str,
) -> None:
    """Show where to send requests now, per region and route.

    A member meets the route's objective (slo) if enough of all planned requests keep its limits ("in time": 95 %, or
    min_goodput of the plan), and enough of them succeed (min_success). Each is decided on its 95 % interval, which
    takes 59 samples: both must be certain for yes, one that is certainly missed is no, and the notes have the reason
    for any other answer. "at most" is the upper bound of p95. Members that share a rank are equal and share the weight.
    json has each table complete.

    A table is fresh, then aging (use it; it no longer switches), then expired: use the plan's static order.
    """
    if context.invoked_subcommand is not None:
        options.require_no_options(context)
        return
    tables = collect_tables(client, regions, route)
    now = now_at()
    if output.format == "json":
        terminal.write(route_pages.changes_page(tables, now_at=now), output)
    else:
        terminal.write(route_pages.page(tables, now_at=now), output)
    route_pages.require_usable(tables, now_at=now)
