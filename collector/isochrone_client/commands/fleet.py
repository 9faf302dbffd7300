"""The commands about the fleet: `isochrone targets`, `vantages`, `coverage` and `rate-limits`."""

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.terminal import Output
from isochrone_wire.answers import Selection


@click.command("targets", epilog=options.example("isochrone targets --output json"))
@options.reading
@options.verdict
@options.client
def targets(*, client: ObservatoryClient, output: Output) -> None:
    """List the targets that are being measured."""
    from isochrone_client.pages import targets as target_pages  # noqa: PLC0415  # each command loads its own page

    answer = client.list_targets()
    terminal.write(target_pages.page(answer), output)
    target_pages.require_targets(answer)


@click.command("vantages", epilog=options.example("isochrone vantages"))
@options.reading
@options.verdict
@options.client
def vantages(*, client: ObservatoryClient, output: Output) -> None:
    """Show which vantages are online, their clocks, spools and plans.

    An online vantage delivers samples. A late one has missed its announced heartbeat; one with "no samples" sends only
    heartbeats; one with "nothing to probe" has no targets. A sample that is neither stored nor waiting nor counted as
    dropped is lost, which is a bug.
    """
    from isochrone_client.pages import regions as vantage_pages  # noqa: PLC0415  # as above

    answer = client.list_vantages()
    terminal.write(vantage_pages.page(answer), output)
    vantage_pages.require_online(answer)


@click.command("coverage", epilog=options.example("isochrone coverage --window 1h", "isochrone coverage --spend"))
@click.option("--spend", is_flag=True, help="Show instead the spend of today (UTC), its forecast and the budgets.")
@options.selecting
def coverage(*, client: ObservatoryClient, output: Output, selection: Selection, spend: bool) -> None:
    """Show how many planned rounds left a sample, and with which outcomes.

    With --spend: the spend of each vantage with each provider since midnight UTC, the forecast of the whole day, and
    the shares of the budget. The window does not apply to it.
    """
    from isochrone_client.pages import coverage as coverage_pages  # noqa: PLC0415  # as above
    from isochrone_client.pages import limits as spending  # noqa: PLC0415  # as above

    if spend:
        spent = client.get_spend(selection)
        terminal.write(spending.page(spent), output)
        spending.require_spend(spent)
        return
    answer = client.get_coverage(selection)
    terminal.write(coverage_pages.page(answer, now_at=now_at()), output)
    coverage_pages.require_rounds(answer)


@click.command(
    "rate-limits", epilog=options.example("isochrone rate-limits", "isochrone rate-limits --window 1h --points 60")
)
@click.option(
    "--points",
    type=click.IntRange(1, 500),
    metavar="N",
    help="Points of the history at most.  [default: 24]",
)
@options.selecting
def rate_limits(*, client: ObservatoryClient, output: Output, selection: Selection, points: int | None) -> None:
    """Show what remains of the rate limits that providers state in response headers.

    The newest headers come from the last 6 hours of the window, the history from all of it. The forecast continues the
    change of the last minutes, which includes every user of the same API key; a reset that comes before ends it.
    """
    from isochrone_client.pages import limits as limit_pages  # noqa: PLC0415  # as above

    answer = client.get_rate_limits(selection, points=points or 0)
    terminal.write(limit_pages.rate_limits_page(answer, now_at=now_at()), output)
    limit_pages.require_limits(answer)
