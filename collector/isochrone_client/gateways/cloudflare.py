"""Dynamic routes of Cloudflare's AI Gateway: for each route a graph of elements, with the members as its models.

A chain of percentages draws one of the weighted members. If it fails, the others follow in the order of the table. A
percentage has two outputs here, because its outputs are named by their shares, which can be equal. Cloudflare calls a
provider at its own address, so members at other addresses are left out. Keys are those stored with Cloudflare.

Formats: https://developers.cloudflare.com/ai-gateway/features/dynamic-routing/json-configuration/,
https://developers.cloudflare.com/api/resources/ai_gateway/subresources/dynamic_routing/methods/create/,
https://developers.cloudflare.com/ai-gateway/usage/chat-completion/ (providers)
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from isochrone_client.gateways.expressible import expressible, host, identifier, metadata
from isochrone_common.route_consumer import priority_groups, read_json_metadata
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

_PROVIDER = {
    "api.anthropic.com": "anthropic",
    "api.cerebras.ai": "cerebras",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.openai.com": "openai",
    "api.x.ai": "grok",
    "generativelanguage.googleapis.com": "google-ai-studio",
}
# Dynamic routes are called as chat completions.
_NOT_CHAT = "openai-responses"
_TIMEOUT_MS = 60_000
_END = "end"


def render(tables: RegionTables) -> dict[str, str]:
    """The routes as JSON. Raises `ClientError` if Cloudflare can call no member."""
    hint = f"it calls {', '.join(sorted(set(_PROVIDER.values())))} at their own addresses"
    parts = expressible(tables, _callable, gateway="Cloudflare", hint=hint)
    routes = [
        {"name": identifier(part.table.route), "elements": list(_elements(part.table))}
        for part in parts
        if part.table.entries
    ]
    document = {"isochrone": list(metadata(tables, parts)), "routes": routes}
    return {"": json.dumps(document, ensure_ascii=False, indent=1) + "\n"}


read_metadata = read_json_metadata


def _callable(table: RouteTable) -> list[RouteEntry]:
    return [entry for entry in table.entries if host(entry) in _PROVIDER and entry.dialect != _NOT_CHAT]


def _elements(table: RouteTable) -> Iterator[dict[str, Any]]:
    groups = priority_groups(table)
    members = [entry for group in groups for entry in group]
    drawn = groups[0]
    yield {"id": "start", "type": "start", "outputs": {"next": _to(_draw(1, len(drawn)))}}
    yield from _draws([entry.weight for entry in drawn])
    for place, first in enumerate(drawn, start=1):
        yield from _attempts(place, [first, *(entry for entry in members if entry is not first)])
    yield {"id": _END, "type": "end", "outputs": {}}


def _draws(weights: Sequence[float]) -> Iterator[dict[str, Any]]:
    """The percentages, each of which draws one member or goes on to the next."""
    for place, weight in enumerate(weights[:-1], start=1):
        percent = min(max(round(100 * weight / sum(weights[place - 1 :])), 1), 99)
        outputs = {f"{percent}%": _to(_model(place, 1)), "else": _to(_draw(place + 1, len(weights)))}
        yield {"id": _draw(place, len(weights)), "type": "percentage", "outputs": outputs}


def _attempts(place: int, members: Sequence[RouteEntry]) -> Iterator[dict[str, Any]]:
    """The member that was drawn, and the others behind it."""
    for attempt, entry in enumerate(members, start=1):
        following = _model(place, attempt + 1) if attempt < len(members) else _END
        yield {
            "id": _model(place, attempt),
            "type": "model",
            "properties": {
                "provider": _PROVIDER[host(entry)],
                "model": entry.model,
                "timeout": _TIMEOUT_MS,
                "retries": 0,
            },
            "outputs": {"success": _to(_END), "fallback": _to(following)},
        }


def _draw(place: int, count: int) -> str:
    """The element that draws the member at that place; the last one needs no draw."""
    return f"draw-{place}" if place < count else _model(place, 1)


def _model(place: int, attempt: int) -> str:
    return f"model-{place}-{attempt}"


def _to(element: str) -> dict[str, str]:
    return {"elementId": element}
