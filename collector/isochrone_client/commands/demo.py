"""`isochrone demo`: the whole system here and now."""

import re
from pathlib import Path

import click

from isochrone_client.demo.runner import run_demo

_UNIT_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    if found is None or not float(found[1]):
        raise click.BadParameter(f"{text!r} is no length of time; write 60s, 2m or 1h")
    return float(found[1]) * _UNIT_SECONDS[found[2]]


@click.command("demo")
@click.option("--for", "seconds", metavar="TIME", callback=_seconds, help="End by itself after 60s, 2m, …")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where database, spools and logs live meanwhile.  [default: a new temporary folder]",
)
@click.option("--keep", is_flag=True, help="Leave the folder there at the end.")
def demo(*, seconds: float | None, folder: Path | None, keep: bool) -> None:
    """Run a collector, agents in three regions and a simulated world on this machine, and show what they find.

    The world's timing is known (published figures of fifteen models), so the last table can say how far off the
    measurement is. Ends with --for, or shows the results on Ctrl-C. Nothing remains running.

    \b
    Example:
      isochrone demo --for 60s
    """
    run_demo(seconds=seconds, folder=folder, keep=keep)
