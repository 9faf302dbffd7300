"""The static order of a route as a table, for the time when no table may be used.

It has the names of the members; their endpoints come from the plan in force or from earlier tables.
"""

from collections.abc import Mapping
from dataclasses import replace

from isochrone_wire.model import Target
from isochrone_wire.routes import RouteEntry, RouteState, RouteTable

SENTENCE = "no table may be used: the static order of the plan"


def endpoint(target: Target) -> RouteEntry:
    """A target of the plan as a member without measurements."""
    return RouteEntry(
        rank=1,
        weight=0.0,
        target=target.name,
        provider=target.provider,
        model=target.model,
        dialect=target.dialect,
        base_url=target.base_url,
        credential_ref=target.credential,
    )


def as_static_order(table: RouteTable, endpoints: Mapping[str, RouteEntry]) -> RouteTable:
    """The table with the members of its static order: all traffic to the first, the others as its fallbacks.

    Its state is `INSUFFICIENT_DATA`, and its instants stay. `endpoints` is by target; members without one are left out.
    """
    known = [endpoints[name] for name in table.static_order if name in endpoints]
    entries = tuple(_unmeasured(entry, rank=rank) for rank, entry in enumerate(known, start=1))
    return replace(
        table,
        state=RouteState.INSUFFICIENT_DATA,
        sentence=SENTENCE,
        entries=entries,
        excluded=(),
        race=None,
        unassigned=0.0,
    )


def _unmeasured(entry: RouteEntry, *, rank: int) -> RouteEntry:
    return RouteEntry(
        rank=rank,
        weight=float(rank == 1),
        target=entry.target,
        provider=entry.provider,
        model=entry.model,
        dialect=entry.dialect,
        base_url=entry.base_url,
        credential_ref=entry.credential_ref,
    )
