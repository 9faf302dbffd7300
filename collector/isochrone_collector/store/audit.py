"""The audit trail: who changed what, recorded in the transaction of the change.

The services set the actor of a call with `acting`; the code that makes the change calls `record`. Both run in the
same task, so the actor is a context variable. Without one, the collector itself is the actor.

The owner of a table can give itself every right, so that no right protects the trail from the collector's own user. But
each entry has a hash over the entry before it: what was changed or removed shows, as long as one later hash is known
elsewhere. `doctor` keeps that of the newest entry.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from isochrone_collector.store.postgres.pool import Connection, Database, execute, fetch, fetch_one
from isochrone_wire.durations import MAX_INSTANT_AT
from isochrone_wire.operations import AuditEntry, AuditTrail


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The authenticated name of a caller, and the address that it calls from."""

    principal: str
    address: str


_LOCK_KEY = 4_600_007
_USUAL, _MOST = 100, 10_000
_ITSELF = Actor(principal="collector", address="")
_actor: ContextVar[Actor] = ContextVar("actor", default=_ITSELF)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Record this actor with every change made in the block."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def principal() -> str:
    """Return the authenticated name of the current caller."""
    return _actor.get().principal


async def record(connection: Connection, *, at: int, action: str, target: str, principal: str | None = None) -> None:
    """Record an action in the caller's transaction, by the current actor or the `principal` that just joins."""
    actor = _actor.get()
    fields = {"principal": principal or actor.principal, "address": actor.address, "action": action, "target": target}
    await execute(connection, "lock_audit", key=_LOCK_KEY)
    head = await fetch_one(connection, "audit_head", Head) or NO_ENTRY
    made = _hash(head.hash, head.id + 1, at, *fields.values())
    await execute(connection, "insert_audit", id=head.id + 1, at=at, hash=made, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest entry: its number, from 1, and its hash."""

    id: int
    hash: bytes


NO_ENTRY = Head(id=0, hash=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The state of the trail: its `head`, its first entry that does not follow the one before it, whether the entry of
    `known` is still there, and whether the collector's user owns the table.
    """

    head: Head
    broken_id: int | None
    has_known: bool
    is_owned: bool

    @property
    def is_whole(self) -> bool:
        """True if nothing shows that an entry was changed or removed."""
        return self.broken_id is None and self.has_known


def chain_of(rows: Iterable[Sequence[Any]], *, known: Head = NO_ENTRY, is_owned: bool) -> Chain:
    """Follow the hashes of all entries, as the statement `audit_chain` returns them."""
    head, broken_id, has_known = NO_ENTRY, None, known == NO_ENTRY
    for *fields, found in rows:
        number = fields[0]
        if broken_id is None and (number != head.id + 1 or found != _hash(head.hash, *fields)):
            broken_id = number
        head = Head(id=number, hash=found)
        has_known = has_known or head == known
    return Chain(head=head, broken_id=broken_id, has_known=has_known, is_owned=is_owned)


def _hash(before: bytes, *fields: str | int) -> bytes:
    return hashlib.sha256(before + json.dumps(fields, separators=(",", ":")).encode()).digest()


async def trail(
    database: Database, *, since_at: int, principal: str = "", action: str = "", limit: int = 0
) -> AuditTrail:
    """Return the newest actions since an instant, newest first, at most `limit` (0 means 100) and 10 000; empty texts
    select all principals and actions.
    """
    most = min(max(limit, 0) or _USUAL, _MOST)
    asked = {"since_at": min(max(since_at, 0), MAX_INSTANT_AT), "principal": principal, "action": action, "most": most}
    async with database.connection() as connection:
        return AuditTrail(entries=tuple(await fetch(connection, "audit_since", AuditEntry, **asked)))
