import re
from pathlib import Path

import click

from isochrone_client.commands import options
from isochrone_client.demo.runner import run_demo


def _seconds(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    if found is None or not float(found[1]):
        raise click.BadParameter(f"{text!r} is not a duration; write 60s, 2m or 1h")
    return float(found[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2]]


@options.command("demo", "isochrone demo --for 60s", "isochrone demo --faults --for 55s")
@click.option("--for", "seconds", metavar="TIME", callback=_seconds, help="End after 60s, 2m, …  [default: on Ctrl-C]")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for database, spools and logs.  [default: a new temporary folder]",
)
@click.option("--keep", is_flag=True, help="Keep the folder at the end.")
@click.option("--faults", is_flag=True, help="Let providers fail, and show the incidents and alerts of that.")
def demo(*, seconds: float | None, folder: Path | None, keep: bool, faults: bool) -> None:
    """Run the whole system on this machine in a simulated world, and show its findings.

    That is a collector, agents in three regions and a world whose timing is known (published figures of fifteen
    models), so that the last table can show the error of the measurement. On a terminal it is the screen of
    `isochrone watch` with its keys, q ends it; elsewhere, a table is printed when there is news.

    With --faults, one provider fails from one region and then from all, another one limits the rate, and one target has
    never worked. A receiver on this machine gets the alerts.

    The results are shown on Ctrl-C or after --for; a second Ctrl-C ends without them. No process remains in any case.
    """
    run_demo(seconds=seconds, folder=folder, keep=keep, faults=faults)
