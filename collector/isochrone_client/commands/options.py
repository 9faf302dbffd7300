"""What every reading command can be told in the same words."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from isochrone_client.address import DEFAULT_COLLECTOR, whom
from isochrone_client.render import OUTPUTS
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
    help="15m, 24h, 7d, 2026-11-01.. or 2026-11-01..2026-11-02 (the end not included; UTC).",
)
targets = click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="GLOB",
    help="Only targets with such a name, for example 'openai/*'. Can be given several times.",
)
regions = click.option(
    "--region", "regions", multiple=True, metavar="REGION", help="Only this region. Can be given several times."
)


def example(*lines: str) -> str:
    """The end of a command's help: lines to copy into a shell."""
    # The backspace keeps click from filling the lines.
    return "\b\n" + "\n".join(["Example:", *(f"  {line}" for line in lines)])


def reading(function: Function) -> Function:
    """The options of every reading command: `collector` (a `Whom`), `timeout_us` (microseconds) and `output`."""

    @functools.wraps(function)
    def asking(*arguments: Any, collector: str | None, identity: Path | None, **told: Any) -> Any:  # noqa: ANN401  # any command's
        return function(*arguments, collector=whom(collector, identity), **told)

    # What has the parameters of a command is one, for all that the checker knows.
    return _collector(_identity(_timeout(_output(cast(Function, asking)))))
