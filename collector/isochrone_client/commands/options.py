"""What every reading command can be told in the same words."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from isochrone_client.address import DEFAULT_COLLECTOR, resolve_collector
from isochrone_client.clock import now_at
from isochrone_client.render import OUTPUTS
from isochrone_client.window import parse_window
from isochrone_wire.answers import Selection
from isochrone_wire.model import SECOND_US

Function = TypeVar("Function", bound=Callable[..., Any])
Option = Callable[[Function], Function]


def _microseconds(_context: click.Context, _parameter: click.Parameter, seconds: float) -> int:
    return round(seconds * SECOND_US)


_collector = click.option(
    "--collector",
    envvar="ISOCHRONE_COLLECTOR",
    show_envvar=True,
    metavar="HOST:PORT",
    help=f"The collector to ask.  [default: the one joined, else {DEFAULT_COLLECTOR}]",
)
_identity = click.option(
    "--identity",
    envvar="ISOCHRONE_IDENTITY",
    show_envvar=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Who asks, as `isochrone join` wrote it.  [default: ~/.config/isochrone/identity.json, if it is there]",
)
_timeout = click.option(
    "--timeout",
    "timeout_us",
    type=click.FloatRange(min=0.1, max=3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    callback=_microseconds,
    help="How long to wait for an answer.",
)
_output = click.option(
    "--output",
    "-o",
    type=click.Choice(OUTPUTS),
    default=OUTPUTS[0],
    show_default=True,
    help="table and markdown are for people; json and csv carry every field of the wire.",
)

window = click.option(
    "--window",
    default="24h",
    show_default=True,
    metavar="RANGE",
    help="15m, 24h, 7d, today, last week, 2026-11, 2026-11-01.. or 2026-11-01..2026-11-08 (the end not included; UTC).",
)
targets = click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="GLOB",
    help="Only targets of such a name, kimi-k2.5 or 'openai/*'. Can be given several times.",
)
regions = click.option(
    "--region", "regions", multiple=True, metavar="REGION", help="Only this region. Can be given several times."
)

route = click.option("--route", default="", metavar="ROUTE", help="Only this route of the plan.")


def example(*lines: str) -> str:
    """The end of a command's help: lines to copy into a shell."""
    # The backspace keeps click from filling the lines.
    return "\b\n" + "\n".join(["Example:", *(f"  {line}" for line in lines)])


def asking(function: Function) -> Function:
    """Collector a command asks and how long it waits: `collector` (a `Collector`) and `timeout_us` (microseconds)."""

    @functools.wraps(function)
    def told(*arguments: Any, collector: str | None, identity: Path | None, **more: Any) -> Any:  # noqa: ANN401  # any command's
        return function(*arguments, collector=resolve_collector(collector, identity), **more)

    # What has the parameters of a command is one, for all that the checker knows.
    return _collector(_identity(_timeout(cast(Function, told))))


def reading(function: Function) -> Function:
    """The options of every reading command: those of `asking`, and `output`."""
    return asking(_output(function))


def selecting(function: Function) -> Function:
    """The options of `reading`, and those that choose samples, as a `selection` up to now."""

    @functools.wraps(function)
    def told(*, window: str, regions: tuple[str, ...], targets: tuple[str, ...], **more: Any) -> Any:  # noqa: ANN401  # any command's
        chosen = Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)
        return function(selection=chosen, **more)

    return regions(targets(window(reading(cast(Function, told)))))
