"""The part of route tables that a gateway can express, for gateways that do not call every endpoint."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from urllib.parse import urlsplit

from isochrone_client.errors import ClientError
from isochrone_common.route_consumer import table_metadata
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9._-]")
NO_QUERY = "members whose base URL has a query need the Python client or Envoy"
"""The hint of gateways that call every other member."""

VENDORS = {
    "api.anthropic.com": "anthropic",
    "api.cerebras.ai": "cerebras",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.openai.com": "openai",
    "generativelanguage.googleapis.com": "google-ai-studio",
}
"""The hosts whose providers Cloudflare and OpenRouter call by the same name."""

Choose = Callable[[RouteTable], Sequence[RouteEntry]]
"""A table to those of its members that a gateway can call, in the order of the table."""


@dataclass(frozen=True, slots=True)
class Part:
    """A table with the members that a gateway can call, and the targets of the others."""

    table: RouteTable
    left_out: tuple[str, ...]


def expressible(tables: RegionTables, choose: Choose, *, gateway: str, hint: str) -> list[Part]:
    """The part of each table, which may have no member. Raises `ClientError` if none has one.

    Members whose base URL has a query are left out: Kong drops the query, LiteLLM and Portkey append the path to it.
    """
    parts = []
    for table in tables.tables:
        plain = tuple(entry for entry in table.entries if not urlsplit(entry.base_url).query)
        chosen = tuple(choose(replace(table, entries=plain)))
        left_out = tuple(entry.target for entry in table.entries if entry not in chosen)
        parts.append(Part(replace(table, entries=chosen), left_out))
    if not any(part.table.entries for part in parts):
        routes = ", ".join(table.route for table in tables.tables)
        raise ClientError(f"{gateway} can call no member of {routes}", hint=hint)
    return parts


def metadata(tables: RegionTables, parts: Sequence[Part]) -> Iterator[Mapping[str, object]]:
    """The metadata of each table, with the targets of its members that are left out, if there are any."""
    for row, part in zip(table_metadata(tables), parts, strict=True):
        yield {**row, "left_out": list(part.left_out)} if part.left_out else row


def left_out_lines(parts: Sequence[Part]) -> Iterator[str]:
    """A sentence for each table with members that are left out, for a comment."""
    return (f"{part.table.route} is without {', '.join(part.left_out)}." for part in parts if part.left_out)


def host(entry: RouteEntry) -> str:
    """The host of a member's base URL, in lower case."""
    return urlsplit(entry.base_url).hostname or ""


def identifier(name: str) -> str:
    """The name with `-` for all but letters, digits, `.`, `_` and `-`, and then with a hash that keeps it unique."""
    plain = _NOT_IN_IDENTIFIERS.sub("-", name)
    return name if plain == name else f"{plain}-{sha256(name.encode()).hexdigest()[:8]}"
