"""Route tables as configuration files of gateways: one pure module per gateway.

Each module renders the tables of one region as the text of one file or more. Every text has the generation of each
table and the instants until which it is fresh and may be used. It holds the names of keys, never the keys.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from isochrone_wire.routes import RegionTables

Renderer = Callable[[RegionTables], Mapping[str, str]]
"""Tables to texts, by the part of the file name before the suffix; it is empty for the main file."""

FORMATS = ("json", "csv", "litellm", "envoy", "portkey")


def renderer(name: str) -> Renderer:
    """The renderer of one of `FORMATS`."""
    module = import_module(f"isochrone_client.gateways.{name}")
    return cast(Renderer, module.render)
