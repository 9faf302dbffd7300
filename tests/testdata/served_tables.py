"""Route tables whose instants are those of the real clock, for commands that compare with it."""

from dataclasses import replace

from isochrone_client.clock import now_at
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteEntry, RouteTable
from testdata.routes import CHAT, at_public_addresses


def fresh(generation: int, *, seconds: float = 3600) -> RouteTable:
    """A table built now, with all traffic on its first or second member: even or odd generations; it expires after
    some seconds.
    """
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
