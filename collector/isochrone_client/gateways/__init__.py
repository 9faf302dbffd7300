"""Route tables in the words of those who route: one module per gateway, all of them pure.

Each takes the tables of one region and gives the text of a file, or of several. Every text says which generation it is
of, until when it is fresh and until when it may be used at all. Keys are named and never in it.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from isochrone_wire.routes import RegionTables

Renderer = Callable[[RegionTables], Mapping[str, str]]
"""Tables to texts, by what is put before the suffix of the file's name; the main one has nothing there."""

FORMATS = ("json", "csv", "litellm", "envoy", "portkey")


def renderer(name: str) -> Renderer:
    """The renderer of one of `FORMATS`."""
    module = import_module(f"isochrone_client.gateways.{name}")
    return cast(Renderer, module.render)
