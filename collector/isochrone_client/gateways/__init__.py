"""Route tables as configuration files of gateways: one pure module per gateway.

Each module renders the tables of one region as the text of one file or more. Every text has the generation of each
table and the instants until which it is fresh and may be used. It holds the names of keys, never the keys.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import cast

from isochrone_wire.routes import RegionTables

Renderer = Callable[[RegionTables], Mapping[str, str]]
"""Tables to texts, by the part of the file name before the suffix; it is empty for the main file."""

Reader = Callable[[str], Iterator[Mapping[str, str]]]
"""The text of a main file to `route`, `generation`, `state`, `fresh_until_at` and `stale_until_at` of each table; a row
may repeat a table and have more. Raises `ValueError`, `KeyError` or `TypeError` if the text is no such file."""

FORMATS = ("json", "csv", "litellm", "envoy", "portkey", "kong", "cloudflare", "openrouter")


def renderer(name: str) -> Renderer:
    """The renderer of one of `FORMATS`."""
    module = import_module(f"isochrone_client.gateways.{name}")
    return cast(Renderer, module.render)


def metadata_reader(name: str) -> Reader:
    """The reader of what the renderer of that name has written."""
    module = import_module(f"isochrone_client.gateways.{name}")
    return cast(Reader, module.read_metadata)
