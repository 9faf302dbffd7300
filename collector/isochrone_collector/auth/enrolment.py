"""Enrolment: invitations, the exchange of a join token for a credential, and revocation.

A secret is created here, returned once, and stored as a hash only.
"""

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from isochrone_collector.auth.limits import BucketPerKey, without_details
from isochrone_collector.errors import BadRequest, Conflict, ResourceExhausted, Unauthenticated, UnknownName
from isochrone_collector.store import access, audit, vantages
from isochrone_collector.store.access import CredentialRow, InvitationRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_common.credentials import (
    CLIENT_KEY_BYTES,
    SECRET_BYTES,
    Credential,
    JoinToken,
    derive_credential,
    derive_successor,
    hash_secret,
    parse_join_token,
)
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.operations import Access, AccessList, AccessState, Invitation, Joined, Renewed, Revoked, Role

MAX_EXPIRES_US = 30 * 86_400 * SECOND_US
MAX_OVERLAP_US = 30 * 86_400 * SECOND_US
MAX_LIFETIME_US = 3650 * DAY_US
DEFAULT_LIFETIMES_US = {Role.VANTAGE: 365 * DAY_US, Role.READER: 365 * DAY_US, Role.OPERATOR: 90 * DAY_US}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
# The rate for tokens of one address that are not open; the connections for joining limit all addresses together.
_LOOK_UPS_PER_SECOND = 5.0

_log = structlog.get_logger()


@dataclass(eq=False, kw_only=True)
class Enrolment:
    """Invitations and credentials of the collectors on one database.

    `join_database` is a small pool for callers without a credential, so that they never keep pushes waiting for a
    connection. `fingerprint` returns the fingerprint of the certificate that tokens carry, empty without TLS.
    `on_change` is called after changes that must be effective at once: a revocation, or a new credential for this
    collector's own operator.
    """

    database: Database
    join_database: Database
    clock: Callable[[], int]
    fingerprint: Callable[[], bytes]
    on_change: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self._invited: dict[int, InvitationRow] = {}
        self._look_ups = BucketPerKey(per_second=_LOOK_UPS_PER_SECOND, burst=4 * _LOOK_UPS_PER_SECOND)

    async def invite(
        self,
        *,
        name: str,
        role: str,
        region: str | None,
        expires_us: int,
        overlap_us: int,
        rotation: bool,
        lifetime_us: int | None = None,
    ) -> Invitation:
        """Create a join token for a new name, or, for a `rotation`, for a name that has credentials already.

        The credential has a lifetime of `lifetime_us`, none if that is 0, and the default of the role if it is `None`.
        Raises `BadRequest`, `Conflict`, and `UnknownName` for the rotation of an unknown name.
        """
        _check_times(expires_us, overlap_us, lifetime_us or 0)
        now_at = self.clock()
        async with self.database.transaction() as connection:
            await access.lock(connection)
            if rotation:
                role, region = await self._known_access(connection, name, role)
                await access.revoke_invitations(connection, name=name, revoked_at=now_at)
            else:
                _check_names(name, role, region)
                await self._check_new(connection, name, region)
            made = _new_credential()
            token = JoinToken(id=made.id, secret=made.secret, fingerprint=self.fingerprint())
            row = InvitationRow(
                id=token.id,
                name=name,
                role=role,
                region=region,
                secret_hash=hash_secret(token.secret),
                overlap_us=overlap_us,
                created_at=now_at,
                expires_at=now_at + expires_us,
                lifetime_us=(DEFAULT_LIFETIMES_US[Role(role)] if lifetime_us is None else lifetime_us) or None,
            )
            await access.invite(connection, row)
            action = "access.rotate" if rotation else "access.invite"
            await audit.record(connection, at=now_at, action=action, target=f"{role} {name}")
        _log.info("access.invited", name=name, role=role, region=region, rotation=rotation)
        return Invitation(token=str(token), expires_at=row.expires_at)

    async def join(self, token_text: str, *, client_key: bytes, address: str, version: str) -> Joined:
        """Exchange a join token, once, for a credential; the same `client_key` gets the same credential again.

        `address` is that of the caller. A token is verified before a lock is taken. Raises `Unauthenticated` and
        `ResourceExhausted`.
        """
        now_at = self.clock()
        if client_key and len(client_key) != CLIENT_KEY_BYTES:
            raise BadRequest(f"the client key must have {CLIENT_KEY_BYTES} bytes")
        try:
            token = parse_join_token(token_text)
        except ValueError as error:
            raise Unauthenticated(str(error)) from None
        credential = derive_credential(token, client_key) if client_key else _new_credential()
        with without_details():
            await self._verify(token, address, now_at)
            row, issued = await self._admit(token, credential, now_at)
        # `on_change` is not needed: the authenticator looks up unknown credentials.
        _log.info("access.joined", name=row.name, role=row.role, region=row.region, version=version[:40])
        return Joined(
            credential=str(credential),
            role=Role(row.role),
            name=row.name,
            region=row.region,
            expires_at=issued.expires_at,
            renew_at=issued.renew_at,
        )

    async def renew(self, credential: Credential) -> Renewed:
        """Return the successor of a valid credential with a lifetime: the same one whenever it is called, so that a
        reply can be lost. Raises `Unauthenticated`, and `BadRequest` for a credential without a lifetime.
        """
        now_at = self.clock()
        async with self.database.transaction() as connection:
            await access.lock(connection)
            row = await access.credential(connection, credential.id)
            if row is None or not _is_held(row, credential, now_at):
                raise Unauthenticated("this credential is not valid, so it cannot be renewed")
            if row.lifetime_us is None:
                raise BadRequest("this credential has no lifetime, so it is not renewed")
            issued, successor = await self._successor(connection, row, credential, now_at)
        return Renewed(credential=str(successor), expires_at=issued.expires_at, renew_at=issued.renew_at)

    async def _successor(
        self, connection: Connection, row: CredentialRow, credential: Credential, now_at: int
    ) -> tuple[CredentialRow, Credential]:
        if row.renewal_key is not None:
            successor = derive_successor(credential, row.renewal_key)
            issued = await access.credential(connection, successor.id)
            if issued is None or not issued.is_valid(now_at):
                raise Unauthenticated(f"the credential of {row.name!r} was renewed, and its successor has ended")
            return issued, successor
        renewal_key = _new_credential().secret
        successor = derive_successor(credential, renewal_key)
        await access.set_renewal_key(connection, row.id, renewal_key)
        issued = _issued(successor, row, now_at, renews=row.id)
        await access.issue(connection, issued)
        await _record(connection, "access.renew", row, now_at)
        _log.info("access.renewed", name=row.name, role=row.role, region=row.region)
        return issued, successor

    async def refresh(self) -> None:
        """Reload the invitations: most tokens are verified without the database. Raises `DatabaseUnavailable`."""
        async with self.join_database.connection() as connection:
            self._invited = {row.id: row for row in await access.invitations(connection)}

    async def _verify(self, token: JoinToken, address: str, now_at: int) -> None:
        """Check that the secret of a token is right, without a lock; the token may have been used."""
        row = self._invited.get(token.id)
        if row is None:
            if not self._look_ups.take(address, now_at):
                raise ResourceExhausted("too many unknown join tokens from this address; try again in a moment")
            async with self.join_database.connection() as connection:
                row = await access.invitation(connection, token.id)
        _checked(row, token)

    async def _admit(
        self, token: JoinToken, credential: Credential, now_at: int
    ) -> tuple[InvitationRow, CredentialRow]:
        async with self.join_database.transaction() as connection:
            # A concurrent revocation must see either the credential or the open invitation.
            await access.lock(connection)
            row = _checked(await access.invitation(connection, token.id), token)
            earlier = await access.credential(connection, credential.id) if row.used_at is not None else None
            if earlier and _is_held(earlier, credential, now_at):  # the reply was lost
                return row, earlier
            what = f"the join token of {row.name!r} has"
            if row.used_at is not None:
                raise Unauthenticated(f"{what} been used already; a token is valid once")
            if row.revoked_at is not None:
                raise Unauthenticated(f"{what} been revoked")
            if not row.is_open(now_at):
                raise Unauthenticated(f"{what} expired; ask for another")
            if not await access.use(connection, row.id, used_at=now_at):
                raise Unauthenticated("the join token was used a moment ago; ask for another")
            issued = _issued(credential, row, now_at)
            await access.issue(connection, issued)
            await access.end_earlier(connection, issued, expires_at=now_at + row.overlap_us)
            await _record(connection, "access.join", row, now_at)
        return row, issued

    async def list_access(self) -> AccessList:
        """Return every credential and every open invitation."""
        now_at = self.clock()
        async with self.database.connection() as connection:
            rows = await access.credentials(connection)
            invited = [row for row in await access.invitations(connection) if row.is_open(now_at)]
        return AccessList(access=(*(_access(row, now_at) for row in rows), *(_access(row, now_at) for row in invited)))

    async def revoke(self, name: str) -> Revoked:
        """End all access and invitations of a name, at once here, within seconds elsewhere. Raises `UnknownName`."""
        async with self.database.transaction() as connection:
            await access.lock(connection)
            names = {row.name for row in await access.credentials(connection)}
            names |= {row.name for row in await access.invitations(connection)}
            if name not in names:
                raise UnknownName.among("name", name, names)
            revoked = await access.revoke(connection, name, revoked_at=self.clock())
            await audit.record(connection, at=self.clock(), action="access.revoke", target=name)
        await self.on_change()
        _log.info("access.revoked", name=name, revoked=revoked.invitations + revoked.credentials)
        return revoked

    async def record_restore(self, *, vantages: bool) -> Revoked:
        """Revoke what a backup may have revived: every join token, and the credentials of readers and operators except
        those of the caller; with `vantages`, those of vantages too. Return the numbers.
        """
        now_at, caller = self.clock(), audit.principal()
        async with self.database.transaction() as connection:
            await access.lock(connection)
            invitations = await access.revoke_invitations(connection, revoked_at=now_at)
            roles = [role for role in Role if vantages or role is not Role.VANTAGE]
            credentials = await access.revoke_roles(connection, roles, keep=caller, revoked_at=now_at)
            target = "all credentials" if vantages else "readers and operators"
            await audit.record(connection, at=now_at, action="database.restored", target=target)
        await self.on_change()
        await self.refresh()
        _log.warning("database.restored", invitations=invitations, credentials=credentials, kept=caller)
        return Revoked(invitations=invitations, credentials=credentials)

    async def operator_credential(self, name: str, current: Credential | None) -> Credential:
        """Return an operator's credential: the `current` one if it is still valid, else a new one."""
        now_at = self.clock()
        async with self.database.transaction() as connection:
            found = await access.credential(connection, current.id) if current else None
            if current and found and found.role == Role.OPERATOR and _is_held(found, current, now_at):
                return current
            made = _new_credential()
            digest = hash_secret(made.secret)
            row = CredentialRow(
                id=made.id, name=name, role=Role.OPERATOR, region=None, secret_hash=digest, created_at=now_at
            )
            await access.issue(connection, row)
            await audit.record(connection, at=now_at, action="access.grant", target=f"{Role.OPERATOR} {name}")
        await self.on_change()
        _log.info("access.granted", name=name, role=Role.OPERATOR.value)
        return made

    async def end_credential(self, credential: Credential) -> None:
        """Revoke one credential."""
        async with self.database.connection() as connection:
            await access.revoke_credential(connection, credential.id, revoked_at=self.clock())

    async def _known_access(self, connection: Connection, name: str, role: str) -> tuple[str, str | None]:
        """Return role and region of a name that has a valid credential or an open invitation."""
        now_at = self.clock()
        good = [row for row in await access.credentials(connection) if row.is_valid(now_at)]
        invited = [row for row in await access.invitations(connection) if row.is_open(now_at)]
        known: list[CredentialRow | InvitationRow] = [*good, *invited]
        found = [(row.role, row.region) for row in known if row.name == name]
        if not found:
            raise UnknownName.among("name", name, {row.name for row in known})
        if role and found[-1][0] != role:
            raise Conflict(f"{name!r} has the role {found[-1][0]} here, not {role}")
        return found[-1]

    async def _check_new(self, connection: Connection, name: str, region: str | None) -> None:
        now_at = self.clock()
        if any(row.name == name and row.is_valid(now_at) for row in await access.credentials(connection)):
            raise Conflict(f"{name!r} has joined already; rotate its credential, or revoke it first")
        if any(row.name == name and row.is_open(now_at) for row in await access.invitations(connection)):
            raise Conflict(f"{name!r} is invited already; rotate for another token, or revoke the open one")
        seen = {row.name: row.region for row in await vantages.vantages(connection)} if region else {}
        if seen.get(name, region) != region:
            raise Conflict(
                f"vantage {name!r} has delivered from {seen[name]!r}; a vantage keeps its region, so take another name"
            )


def _check_times(expires_us: int, overlap_us: int, lifetime_us: int) -> None:
    if not 0 < expires_us <= MAX_EXPIRES_US:
        raise BadRequest("a join token must be valid for more than 0 and at most 30 days")
    if not 0 <= overlap_us <= MAX_OVERLAP_US:
        raise BadRequest("credentials may overlap for at most 30 days")
    if not 0 <= lifetime_us <= MAX_LIFETIME_US:
        raise BadRequest("a credential has a lifetime of at most 10 years, or none")


def _check_names(name: str, role: str, region: str | None) -> None:
    if role not in set(Role):
        raise BadRequest(f"unknown role {role!r}; choose vantage, reader or operator")
    if not _NAME.fullmatch(name):
        raise BadRequest("a name is 1 to 63 letters, digits, dots, dashes, underscores and @, a letter or digit first")
    if (role == Role.VANTAGE) != (region is not None):
        raise BadRequest("a vantage requires a region, and other roles have none")
    if region is not None and not _NAME.fullmatch(region):
        raise BadRequest("the name of a region follows the rules of vantage names, for example ap-southeast-1")


def _checked(row: InvitationRow | None, token: JoinToken) -> InvitationRow:
    if row is None or not hmac.compare_digest(row.secret_hash, hash_secret(token.secret)):
        raise Unauthenticated("this collector did not make the join token")
    return row


def _issued(
    credential: Credential, access_of: CredentialRow | InvitationRow, now_at: int, *, renews: int | None = None
) -> CredentialRow:
    """Return the row of a new credential with the name, role, region and lifetime of `access_of`."""
    lifetime_us = access_of.lifetime_us
    return CredentialRow(
        id=credential.id,
        name=access_of.name,
        role=access_of.role,
        region=access_of.region,
        secret_hash=hash_secret(credential.secret),
        created_at=now_at,
        expires_at=None if lifetime_us is None else now_at + lifetime_us,
        lifetime_us=lifetime_us,
        renews=renews,
    )


async def _record(connection: Connection, action: str, row: CredentialRow | InvitationRow, now_at: int) -> None:
    target = f"{row.role} {row.name}"
    await audit.record(connection, at=now_at, action=action, target=target, principal=row.name)


def _is_held(row: CredentialRow, credential: Credential, now_at: int) -> bool:
    return hmac.compare_digest(row.secret_hash, hash_secret(credential.secret)) and row.is_valid(now_at)


def _access(row: CredentialRow | InvitationRow, now_at: int) -> Access:
    known = Access(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        region=row.region,
        state=AccessState.INVITED,
        created_at=row.created_at,
        expires_at=row.expires_at,
    )
    if isinstance(row, InvitationRow):
        return known
    ended = AccessState.EXPIRED if row.revoked_at is None else AccessState.REVOKED
    return replace(
        known,
        state=AccessState.ACTIVE if row.is_valid(now_at) else ended,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        renew_at=row.renew_at if row.ends_with_lifetime else None,
    )


def _new_credential() -> Credential:
    return Credential(id=secrets.randbits(63) or 1, secret=secrets.token_bytes(SECRET_BYTES))
