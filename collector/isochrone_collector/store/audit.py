"""The audit trail: who changed what, recorded in the transaction of the change.

The services set the actor of a call with `acting`; the code that makes the change calls `record`. Both run in the
same task, so the actor is a context variable. Without one, the collector itself is the actor.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_wire.operations import AuditEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The authenticated name of a caller, and the address that it calls from."""

    principal: str
    address: str


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
    await execute(
        connection,
        "insert_audit",
        id=secrets.randbits(63),
        at=at,
        principal=principal or actor.principal,
        address=actor.address,
        action=action,
        target=target,
    )


async def entries(
    connection: Connection, *, since_at: int, principal: str = "", action: str = "", most: int
) -> list[AuditEntry]:
    """Return the newest actions since an instant, newest first; empty texts select all principals and actions."""
    asked = {"since_at": since_at, "principal": principal, "action": action, "most": most}
    return await fetch(connection, "audit_since", AuditEntry, **asked)
