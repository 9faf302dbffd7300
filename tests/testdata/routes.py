"""Route tables as returned by a collector: one of each kind that readers must distinguish."""

from dataclasses import replace

from isochrone_client.window import now_at
from isochrone_wire.json_format import from_json
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import Explanation, RouteEntry, RouteEvent, RouteTable
from testdata.insights import ANSWERS, read_all

TABLES = CHAT, VOICE, UNKNOWN_YET, EXPIRED = read_all(RouteTable, "tables")
EVENTS = read_all(RouteEvent, "events")
EXPLANATION = from_json(Explanation, ANSWERS["explanation"] | {"table": ANSWERS["tables"][0]})
PUBLIC = {
    "deepseek": "https://api.deepseek.com/v1",
    "qwen": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    "groq": "https://api.groq.com/openai/v1",
}


def at_public_addresses(table: RouteTable) -> RouteTable:
    """The table with members at the addresses of their providers, which hosted gateways know."""
    entries = tuple(replace(entry, base_url=PUBLIC[entry.provider]) for entry in table.entries)
    return replace(table, entries=entries)


def fresh(generation: int, *, seconds: float = 3600) -> RouteTable:
    """A table built now, with all traffic on its first (even generations) or second member, stale after `seconds`."""
    now = now_at()
    first, second, *others = at_public_addresses(CHAT).entries
    shares = (1.0, 0.0) if generation % 2 == 0 else (0.0, 1.0)
    entries = (replace(first, weight=shares[0]), replace(second, weight=shares[1]), *others)
    stale_at = now + round(seconds * SECOND_US)
    return replace(
        CHAT,
        generation=generation,
        etag=f"{generation}-0",
        built_at=now,
        fresh_until_at=stale_at,
        stale_until_at=stale_at,
        entries=entries,
    )


def simulated_member(base_url: str, *, rank: int, dialect: str = "openai-chat") -> RouteEntry:
    """A member that the simulator serves: the first one, with all traffic, or the second."""
    model = ("fault-none", "fault-crlf")[rank - 1]
    return RouteEntry(
        rank=rank,
        weight=float(rank == 1),
        target=f"sim/{model}",
        provider="sim",
        model=model,
        dialect=dialect,
        base_url=base_url,
        credential_ref="sim",
    )
