"""The options with which every operator's command says which collector it means, and who asks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from isochrone_collector.settings import DEFAULT_LISTEN

Function = TypeVar("Function", bound=Callable[..., Any])

_collector = click.option(
    "--collector",
    envvar="ISOCHRONE_COLLECTOR",
    metavar="HOST:PORT",
    help=f"The collector.  [default: the identity's, else {DEFAULT_LISTEN}]",
)
_identity = click.option(
    "--identity",
    envvar="ISOCHRONE_IDENTITY",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Who asks, as `isochrone join` wrote it.  [default: operator.json in the data folder, if it is there]",
)


def reaching(function: Function) -> Function:
    """The options `collector` (text or `None`) and `identity` (path or `None`), as `operator_channel` takes them."""
    return _collector(_identity(function))
