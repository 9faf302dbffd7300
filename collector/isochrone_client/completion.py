"""Completion of regions, targets and contexts in a shell, by a collector that answers at once; and its script."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from isochrone_client import configuration
from isochrone_client.address import resolve_collector
from isochrone_common.cli.command_line import completion_command
from isochrone_wire.errors import IsochroneError

_TIMEOUT_US = 500_000

completion = completion_command("isochrone")


def regions(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The regions that begin with `incomplete`."""
    try:
        with _client(context) as client:
            return _beginning(client.names().regions, incomplete)
    except (IsochroneError, ValueError):
        return []


def targets(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The targets that begin with `incomplete`, or whose model does."""
    try:
        with _client(context) as client:
            known = client.list_targets().targets
    except (IsochroneError, ValueError):
        return []
    names, models = {target.name for target in known}, {target.model for target in known}
    return _beginning(names, incomplete) or _beginning(models, incomplete)


def contexts(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The contexts that begin with `incomplete`."""
    try:
        return _beginning(configuration.read().contexts, incomplete)
    except IsochroneError:
        return []


def _client(context: click.Context) -> Any:  # noqa: ANN401  # a ReadClient, imported late
    from isochrone_client.client import ReadClient  # noqa: PLC0415  # completing an option can do without

    # While a shell completes, click reads options but neither variables nor callbacks.
    collector = context.params.get("collector") or os.environ.get("ISOCHRONE_COLLECTOR")
    identity = context.params.get("identity") or os.environ.get("ISOCHRONE_IDENTITY")
    where = resolve_collector(collector, Path(identity) if identity else None)
    return ReadClient(where, timeout_us=_TIMEOUT_US, connect_timeout_us=_TIMEOUT_US)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
