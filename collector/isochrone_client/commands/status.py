import click

from isochrone_client import terminal
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.pages import status as pages
from isochrone_client.terminal import Output
from isochrone_client.window import now_at


@options.command("status", "isochrone status", "isochrone status --output json", "isochrone status --watch 30")
@options.reading
@options.verdict
@options.client
def status(*, client: ReadClient, output: Output) -> None:
    """Show what is wrong now: since when, where, and how sure that is; one line if all is well.

    Looked at are open incidents, targets that became slower, targets and vantages that deliver nothing, clocks, budgets
    and the collector's certificate. The exit code is 0 if all is well, 5 with warnings and 6 with a critical finding:
    requests fail, or nothing is measured. With --exit-code it is 4 if it is too early to judge.
    """
    answer = client.get_status()
    terminal.write(pages.page(answer, now_at=now_at()), output)
    pages.require_age(answer)
    code = pages.EXIT_CODES.get(answer.verdict)
    if code and not output.repeated:
        click.get_current_context().exit(code)
