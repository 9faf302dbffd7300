from collections.abc import Iterable, Iterator

import click

from isochrone_client import completion, terminal
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.errors import UnknownNameError
from isochrone_client.pages import routes as pages
from isochrone_client.streams import TableStream
from isochrone_client.terminal import Output
from isochrone_client.window import now_at
from isochrone_common.cli.command_line import CommandGroup, Entry
from isochrone_wire.answers import Selection, Window
from isochrone_wire.routes import ChangeKind, RouteTable

COMMANDS = {
    name: Entry(f"isochrone_client.commands.{module}:{name}", line)
    for name, module, line in (
        ("watch", "routes", "Show each table as it changes, until interrupted."),
        ("history", "routes", "Show switches, freezes and their ends, newest first."),
        ("export", "route_export", "Write the tables of a region as a file for a gateway."),
        ("kubernetes", "kubernetes", "Make routes of a Kubernetes cluster follow the tables of a region."),
    )
}


@click.group(
    "routes",
    cls=CommandGroup,
    entries=COMMANDS,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",
    epilog=options.example("isochrone routes", "isochrone routes --region us-east-2 --output json"),
)
@options.repeating
@options.regions
@options.route
@options.reading
@options.verdict
@click.pass_context
@options.estimand
@options.client
def routes(context: click.Context, *, client: ReadClient, output: Output, regions: tuple[str, ...], route: str) -> None:
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
    tables, now = client.list_tables(regions, route), now_at()
    if output.format == "json":
        terminal.write(pages.changes_page(tables, now_at=now), output)
    else:
        terminal.write(pages.page(tables, now_at=now), output)
    pages.require_usable(tables, now_at=now)


@options.command(
    "watch",
    "isochrone routes watch",
    "isochrone routes watch --route chat",
    "isochrone routes watch --output json --after 48",
)
@options.region_option("--region", default="", help="Only this region.")
@options.route
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="GENERATION",
    help="Begin after this generation, the last one seen.  [default: with all in force]",
)
@click.option("--all", "every", is_flag=True, help="Also tables that were only refreshed with new evidence.")
@options.printing
@options.client
def watch(*, client: ReadClient, output: Output, region: str, route: str, after: int, every: bool) -> None:
    """Show each table as it changes, until interrupted.

    The tables in force come first. Each change has a line with its time, the weights and the reason; json has each
    complete table on one line.
    After an outage of the collector it continues with the next generation: none is lost or repeated. On another
    database it starts over and reports that. Ctrl-C ends it with exit code 0.
    """
    watching = TableStream(client=client, client_region=region, route=route, after=after, report=terminal.remark)
    tables = watching.tables() if every else _changed(watching.tables(), after=after)
    terminal.write_all((pages.changes_page((table,), now_at=now_at()) for table in tables), output)


def _changed(tables: Iterable[RouteTable], *, after: int) -> Iterator[RouteTable]:
    """Leave out tables that were only refreshed, except those in force at the start and on another database."""
    seen: set[tuple[str, str]] | None = None if after else set()
    last = after
    for table in tables:
        if table.generation < last:  # another database, of which the tables in force come first
            seen = set()
        last, place = table.generation, (table.client_region, table.route)
        is_first = seen is not None and place not in seen
        if is_first or table.change is not ChangeKind.EVIDENCE:
            yield table
        if seen is not None:
            seen.add(place)


@options.command("history", "isochrone routes history --window 24h")
@options.regions
@options.route
@options.window
@options.reading
@options.client
def history(*, client: ReadClient, output: Output, regions: tuple[str, ...], route: str, window: Window) -> None:
    """Show switches, freezes and their ends, newest first.

    New plans and gradual changes of weights are included; tables that were only refreshed are left out.
    """
    answer = client.list_route_events(Selection(window=window, regions=regions), route=route)
    terminal.write(pages.events_page(answer, now_at=now_at()), output)
    if not answer.events:
        terminal.state_empty(pages.empty_message(answer.window))


@options.command("explain", "isochrone explain us-east-2 chat", "isochrone explain us-east-2 chat --output json")
@click.argument("region", shell_complete=completion.regions)
@click.argument("route")
@click.option(
    "--generation",
    type=click.IntRange(min=1),
    metavar="GENERATION",
    help="The table to explain.  [default: the newest]",
)
@options.reading
@options.client
def explain(*, client: ReadClient, output: Output, region: str, route: str, generation: int | None) -> None:
    """Show the decision behind the table of ROUTE in REGION, named in any order.

    The collector repeats the decision from the inputs that are stored with the table, lists each step, and compares the
    result byte for byte; the exit code is 1 if it differs. json also has the inputs and the previous state.
    """
    try:
        answer = client.explain_route(region, route, generation=generation or 0)
    except UnknownNameError as error:
        try:
            answer = client.explain_route(route, region, generation=generation or 0)
        except UnknownNameError:
            raise error from None
    if output.format == "json":
        terminal.write(pages.document(answer), output)
    else:
        terminal.write(pages.explanation_page(answer, now_at=now_at()), output)
    pages.require_replay(answer)
