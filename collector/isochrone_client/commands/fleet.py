import click

from isochrone_client import terminal
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.errors import NoSamplesError
from isochrone_client.formats import between
from isochrone_client.pages import fleet as pages
from isochrone_client.terminal import Output
from isochrone_client.window import now_at
from isochrone_wire.answers import Selection


@options.command("targets", "isochrone targets --output json")
@options.reading
@options.verdict
@options.client
def targets(*, client: ReadClient, output: Output) -> None:
    """List the targets that are being measured."""
    answer = client.list_targets()
    terminal.write(pages.targets_page(answer), output)
    pages.require_targets(answer)


@options.command("vantages", "isochrone vantages")
@options.reading
@options.verdict
@options.client
def vantages(*, client: ReadClient, output: Output) -> None:
    """Show which vantages are online, their clocks, spools and plans.

    An online vantage delivers samples. A late one has missed its announced heartbeat; one with "no samples" sends only
    heartbeats; one with "nothing to probe" has no targets; of a stopped one, the agent was stopped in an orderly way. A
    sample that is neither stored nor waiting nor counted as dropped is lost, which is a bug.
    """
    answer = client.list_vantages()
    terminal.write(pages.vantages_page(answer), output)
    pages.require_online(answer)


@options.command("coverage", "isochrone coverage --window 1h", "isochrone coverage --spend")
@click.option("--spend", is_flag=True, help="Show instead the spend of today (UTC), its forecast and the budgets.")
@options.selecting
def coverage(*, client: ReadClient, output: Output, selection: Selection, spend: bool) -> None:
    """Show how many planned rounds left a sample, and with which outcomes.

    With --spend: the spend of each vantage with each provider since midnight UTC, the forecast of the whole day, and
    the shares of the budget. The window does not apply to it.
    """
    if spend:
        spent = client.get_spend(selection)
        terminal.write(pages.spend_page(spent), output)
        pages.require_spend(spent)
        return
    answer = client.get_coverage(selection)
    terminal.write(pages.coverage_page(answer, now_at=now_at()), output)
    pages.require_rounds(answer)


@options.command("rate-limits", "isochrone rate-limits", "isochrone rate-limits --window 1h --points 60")
@click.option(
    "--points", type=click.IntRange(1, 500), metavar="N", help="Points of the history at most.  [default: 24]"
)
@options.selecting
def rate_limits(*, client: ReadClient, output: Output, selection: Selection, points: int | None) -> None:
    """Show what remains of the rate limits that providers state in response headers.

    The newest headers come from the last 6 hours of the window, the history from all of it. The forecast continues the
    change of the last minutes, which includes every user of the same API key; a reset that comes before ends it.
    """
    answer = client.get_rate_limits(selection, points=points or 0)
    terminal.write(pages.rate_limits_page(answer, now_at=now_at()), output)
    if not answer.limits:
        raise NoSamplesError(
            f"no response stated a rate limit in the last 6 h of {between(answer.window)}",
            window=answer.window,
            hint="not every provider sends such headers; `isochrone samples --output json` shows what was stored",
        )
