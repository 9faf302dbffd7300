"""Route tables as configuration files of gateways: one pure module per gateway.

`render` makes of the `RegionTables` of one region the text of one file or more, by the part of the file name before the
suffix; it is empty for the main file. Every text has the generation of each table and the instants until which it is
fresh and may be used. It holds the names of keys, never the keys.

`read_metadata` reads from the text of a main file `route`, `generation`, `state`, `fresh_until_at` and `stale_until_at`
of each table; a row may repeat a table and have more. Raises `ValueError`, `KeyError` or `TypeError` for other texts.
"""

from importlib import import_module
from types import ModuleType

FORMATS = ("json", "csv", "litellm", "envoy", "portkey", "kong", "cloudflare", "openrouter")


def gateway(name: str) -> ModuleType:
    """The module of one of `FORMATS`."""
    return import_module(f"isochrone_client.gateways.{name}")
