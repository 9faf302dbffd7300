from collections.abc import Iterable
from dataclasses import dataclass, field

from isochrone_collector.store.postgres.pool import Connection, execute, fetch, fetch_one, fetch_tuples, fetch_values
from isochrone_collector.store.postgres.values import fields_of
from isochrone_wire.operations import Revoked, Role

_LOCK_KEY = 4_600_006


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialRow:
    """A credential. `renews` is the one it succeeds; its own successor is derived with `renewal_key`."""

    id: int
    name: str
    role: str
    region: str | None
    secret_hash: bytes = field(repr=False)
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None
    lifetime_us: int | None = None
    renewal_key: bytes | None = field(default=None, repr=False)
    renews: int | None = None

    def is_valid(self, at: int) -> bool:
        """Return whether it is accepted at that instant."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)

    @property
    def renew_at(self) -> int | None:
        """The instant from which its holder should renew it: the last third of its lifetime."""
        return None if self.lifetime_us is None else self.created_at + self.lifetime_us * 2 // 3

    @property
    def ends_with_lifetime(self) -> bool:
        """Return whether its end is that of its lifetime, and not that of an overlap with a newer credential."""
        return self.lifetime_us is not None and self.expires_at == self.created_at + self.lifetime_us


@dataclass(frozen=True, slots=True, kw_only=True)
class InvitationRow:
    """A join token; earlier credentials of the name end `overlap_us` (microseconds) after its use."""

    id: int
    name: str
    role: str
    region: str | None
    secret_hash: bytes = field(repr=False)
    overlap_us: int
    created_at: int
    expires_at: int
    used_at: int | None = None
    revoked_at: int | None = None
    lifetime_us: int | None = None

    def is_open(self, at: int) -> bool:
        """Return whether it can still be used at that instant."""
        return self.used_at is None and self.revoked_at is None and at < self.expires_at


async def lock(connection: Connection) -> None:
    """Prevent other changes of credentials and invitations until this transaction ends."""
    await execute(connection, "take_lock", key=_LOCK_KEY)


async def credentials(connection: Connection) -> list[CredentialRow]:
    """Return all credentials ever made, oldest first."""
    return await fetch(connection, "credentials", CredentialRow)


async def counts(connection: Connection) -> tuple[int, ...]:
    """Return the numbers of credentials ever made, revoked, given an end, and used; none of them ever decreases."""
    return (await fetch_tuples(connection, "credential_counts"))[0]


async def credential(connection: Connection, credential_id: int) -> CredentialRow | None:
    """Return the credential of that id, in any state."""
    return await fetch_one(connection, "credential_by_id", CredentialRow, id=credential_id)


async def invitations(connection: Connection) -> list[InvitationRow]:
    """Return all invitations that are neither used nor revoked, including expired ones, oldest first."""
    return await fetch(connection, "invitations", InvitationRow)


async def invitation(connection: Connection, invitation_id: int) -> InvitationRow | None:
    """Return the invitation of that id, in any state."""
    return await fetch_one(connection, "invitation_by_id", InvitationRow, id=invitation_id)


async def invite(connection: Connection, row: InvitationRow) -> None:
    """Record an invitation."""
    await execute(connection, "insert_invitation", **fields_of(row))


async def use(connection: Connection, invitation_id: int, *, used_at: int) -> bool:
    """Mark an invitation as used; False if it was used before or is no longer open."""
    return await execute(connection, "use_invitation", id=invitation_id, used_at=used_at)


async def issue(connection: Connection, row: CredentialRow) -> None:
    """Record a new credential."""
    await execute(connection, "insert_credential", **fields_of(row))


async def end_earlier(connection: Connection, row: CredentialRow, *, expires_at: int) -> None:
    """End the other credentials of a name at that instant, unless they end sooner."""
    await execute(connection, "end_earlier_credentials", id=row.id, name=row.name, expires_at=expires_at)


async def set_renewal_key(connection: Connection, credential_id: int, renewal_key: bytes) -> None:
    """Set the key from which the successor of a credential is derived."""
    await execute(connection, "set_renewal_key", id=credential_id, renewal_key=renewal_key)


async def end_renewed(connection: Connection, used: Iterable[int], *, expires_at: int) -> None:
    """End the credentials whose successors, among `used`, are used for the first time, unless they end sooner."""
    await execute(connection, "end_renewed_credentials", used=list(used), expires_at=expires_at)


async def revoke(connection: Connection, name: str, *, revoked_at: int) -> Revoked:
    """End every credential and open invitation of a name; return their numbers."""
    ended = await fetch_values(connection, "revoke_credentials", name=name, revoked_at=revoked_at)
    invitations = await revoke_invitations(connection, name=name, revoked_at=revoked_at)
    return Revoked(invitations=invitations, credentials=len(ended))


async def revoke_invitations(connection: Connection, *, name: str | None = None, revoked_at: int) -> int:
    """End the open invitations of a name, or all; return their number."""
    return len(await fetch_values(connection, "revoke_invitations", name=name, revoked_at=revoked_at))


async def revoke_roles(connection: Connection, roles: Iterable[Role], *, keep: str, revoked_at: int) -> int:
    """End the valid credentials of these roles, except those of the name `keep`; return their number."""
    return len(await fetch_values(connection, "revoke_roles", roles=list(roles), keep=keep, revoked_at=revoked_at))


async def revoke_credential(connection: Connection, credential_id: int, *, revoked_at: int) -> None:
    """End one credential."""
    await execute(connection, "revoke_credential", id=credential_id, revoked_at=revoked_at)


async def record_use(connection: Connection, credential_ids: Iterable[int], *, used_at: int) -> None:
    """Record that these credentials were used."""
    await execute(connection, "record_credential_use", ids=list(credential_ids), used_at=used_at)
