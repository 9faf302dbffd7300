"""The members of a table in the order in which one request tries them. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from isochrone_wire.routes import RouteEntry, RouteState, RouteTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An endpoint for a request. `credential_ref` is the name of its key, `None` if it needs none; `is_static` if the
    choice is that of the plan's static order, because no table may be used.
    """

    route: str
    target: str
    provider: str
    model: str
    dialect: str
    base_url: str
    credential_ref: str | None
    generation: int
    is_static: bool


def choice(table: RouteTable, entry: RouteEntry) -> Choice:
    """The endpoint of an entry."""
    return Choice(
        route=table.route,
        target=entry.target,
        provider=entry.provider,
        model=entry.model,
        dialect=entry.dialect,
        base_url=entry.base_url,
        credential_ref=entry.credential_ref,
        generation=table.generation,
        is_static=table.state is RouteState.INSUFFICIENT_DATA,
    )


def order(
    entries: Sequence[RouteEntry],
    *,
    unassigned: float,
    draw: float,
    throttled: Collection[str] = (),
    failing: Collection[str] = (),
) -> tuple[RouteEntry, ...]:
    """The members to try: one drawn by weight, then the others by rank.

    `draw` is a random number from 0 to 1 (excluded). A draw in the `unassigned` share of the traffic gives no member.
    Weights are relative, because a request may have a part of the members only. Members that are `throttled` are left
    out, and `failing` ones come last.
    """
    drawn = _drawn(entries, unassigned=unassigned, draw=draw)
    if drawn is None:
        return ()
    wanted = [drawn, *(entry for entry in entries if entry is not drawn)]
    ready = [entry for entry in wanted if entry.target not in throttled]
    return tuple(sorted(ready, key=lambda entry: entry.target in failing))


def _drawn(entries: Sequence[RouteEntry], *, unassigned: float, draw: float) -> RouteEntry | None:
    """The entry in whose share the draw falls; the last one with a weight for what rounding leaves."""
    if not entries or draw >= 1 - unassigned:
        return None
    weighted = [entry for entry in entries if entry.weight > 0] or list(entries[:1])
    whole, end = sum(entry.weight for entry in weighted) or 1.0, 0.0
    for entry in weighted:
        end += entry.weight / whole * (1 - unassigned)
        if draw < end:
            return entry
    return weighted[-1]
