"""Dynamic routes of Cloudflare's AI Gateway: for each route a graph of elements, with the members as its models.

A chain of percentages draws one of the weighted members. If it fails, the others follow in the order of the table. A
percentage has two outputs here, because its outputs are named by their shares, which can be equal. Cloudflare calls a
provider at its own address, so members at other addresses are left out. Keys are those stored with Cloudflare.

Formats: https://developers.cloudflare.com/ai-gateway/features/dynamic-routing/json-configuration/,
https://developers.cloudflare.com/api/resources/ai_gateway/subresources/dynamic_routing/methods/create/,
https://developers.cloudflare.com/ai-gateway/usage/chat-completion/ (providers)
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from isochrone_client.gateways.expressible import VENDORS, expressible, host, identifier, metadata
from isochrone_common.route_consumer import priority_groups, read_json_metadata
from isochrone_wire.routes import RegionTables, RouteTable

_PROVIDER = VENDORS | {"api.x.ai": "grok"}
_END = "end"


def render(tables: RegionTables) -> dict[str, str]:
    """The routes as JSON. Raises `ClientError` if Cloudflare can call no member."""
    hint = f"it calls {', '.join(sorted(set(_PROVIDER.values())))} at their own addresses"
    parts = expressible(
        tables,
        # Dynamic routes are called as chat completions.
        lambda table: [one for one in table.entries if host(one) in _PROVIDER and one.dialect != "openai-responses"],
        gateway="Cloudflare",
        hint=hint,
    )
    routes = [
        {"name": identifier(part.table.route), "elements": list(_elements(part.table))}
        for part in parts
        if part.table.entries
    ]
    document = {"isochrone": list(metadata(tables, parts)), "routes": routes}
    return {"": json.dumps(document, ensure_ascii=False, indent=1) + "\n"}


read_metadata = read_json_metadata


def _elements(table: RouteTable) -> Iterator[dict[str, Any]]:
    groups = priority_groups(table)
    members = [entry for group in groups for entry in group]
    drawn = groups[0]
    yield _element("start", "start", {"next": _draw(1, len(drawn))})
    # Each percentage draws one member or goes on to the next.
    for place in range(1, len(drawn)):
        percent = min(max(round(100 * drawn[place - 1].weight / sum(one.weight for one in drawn[place - 1 :])), 1), 99)
        outputs = {f"{percent}%": _model(place, 1), "else": _draw(place + 1, len(drawn))}
        yield _element(_draw(place, len(drawn)), "percentage", outputs)
    for place, first in enumerate(drawn, start=1):
        # The member that was drawn, and the others behind it.
        for attempt, entry in enumerate([first, *(entry for entry in members if entry is not first)], start=1):
            following = _model(place, attempt + 1) if attempt < len(members) else _END
            properties = {"provider": _PROVIDER[host(entry)], "model": entry.model, "timeout": 60_000, "retries": 0}
            outputs = {"success": _END, "fallback": following}
            yield _element(_model(place, attempt), "model", outputs, properties=properties)
    yield _element(_END, "end", {})


def _element(name: str, kind: str, outputs: Mapping[str, str], **more: object) -> dict[str, Any]:
    following = {output: {"elementId": to} for output, to in outputs.items()}
    return {"id": name, "type": kind, **more, "outputs": following}


def _draw(place: int, count: int) -> str:
    """The element that draws the member at that place; the last one needs no draw."""
    return f"draw-{place}" if place < count else _model(place, 1)


def _model(place: int, attempt: int) -> str:
    return f"model-{place}-{attempt}"
