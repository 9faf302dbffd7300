"""Joining and leaving: invitations are traded for credentials, once, and a name can be shut out.

A secret is made here, handed over once, and kept as a hash only.
"""

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable

import structlog

from isochrone_collector.auth.rate_limit import Bucket
from isochrone_collector.errors import BadRequest, Conflict, NotAdmitted, TooMany, UnknownName
from isochrone_collector.store import access, vantages
from isochrone_collector.store.access import CredentialRow, InvitationRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.credentials import SECRET_BYTES, Credential, JoinToken, hash_secret, parse_join_token
from isochrone_wire.model import SECOND_US
from isochrone_wire.operations import Access, AccessList, AccessState, Invitation, Joined, Role

MAX_EXPIRES_US = 30 * 86_400 * SECOND_US
MAX_OVERLAP_US = 30 * 86_400 * SECOND_US

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_ID_BITS = 63
_JOINS_PER_SECOND = 50.0

_log = structlog.get_logger()


class Enrolment:
    """Who may come in. `fingerprint` tells the certificate that tokens are to carry, empty where plain text is spoken;
    `changed` is called when a credential must not wait for being noticed: it has ended, or it is our own.
    """

    def __init__(
        self,
        *,
        database: Database,
        clock: Callable[[], int],
        fingerprint: Callable[[], bytes],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._database = database
        self._clock = clock
        self._fingerprint = fingerprint
        self._changed = changed
        self._joins = Bucket(per_second=_JOINS_PER_SECOND, burst=4 * _JOINS_PER_SECOND)

    async def invite(
        self, *, name: str, role: str, region: str | None, expires_us: int, overlap_us: int, rotation: bool
    ) -> Invitation:
        """A join token for a new name, or, as a `rotation`, for one that has credentials already.

        Raises `BadRequest`, `Conflict`, and `UnknownName` for the rotation of nobody.
        """
        _check_times(expires_us, overlap_us)
        now_at = self._clock()
        async with self._database.transaction() as connection:
            await access.lock(connection)
            if rotation:
                role, region = await self._known(connection, name, role)
                await access.revoke_invitations(connection, name, revoked_at=now_at)
            else:
                _check_names(name, role, region)
                await self._check_new(connection, name, region)
            token = JoinToken(id=_new_id(), secret=_new_secret(), fingerprint=self._fingerprint())
            row = InvitationRow(
                id=token.id,
                name=name,
                role=role,
                region=region,
                secret_hash=hash_secret(token.secret),
                overlap_us=overlap_us,
                created_at=now_at,
                expires_at=now_at + expires_us,
                used_at=None,
                revoked_at=None,
            )
            await access.invite(connection, row)
        _log.info("access.invited", name=name, role=role, region=region, rotation=rotation)
        return Invitation(token=str(token), expires_at=row.expires_at)

    async def join(self, token_text: str, *, version: str) -> Joined:
        """The credential that a join token is good for, once. Raises `NotAdmitted` and `TooMany`."""
        now_at = self._clock()
        if not self._joins.take(now_at):
            raise TooMany("too many join at once; try again in a moment")
        try:
            token = parse_join_token(token_text)
        except ValueError as error:
            raise NotAdmitted(str(error)) from None
        credential = Credential(id=_new_id(), secret=_new_secret())
        async with self._database.transaction() as connection:
            # A revocation that runs beside this one must see the credential or the open invitation.
            await access.lock(connection)
            row = _checked(await access.invitation(connection, token.id), token, now_at)
            if not await access.use(connection, row.id, used_at=now_at):
                raise NotAdmitted("the join token was used by somebody else a moment ago; ask for another")
            await access.admit(
                connection,
                row,
                credential_id=credential.id,
                secret_hash=hash_secret(credential.secret),
                created_at=now_at,
            )
        # Nobody has to be told: the gate looks up whom it has never seen.
        _log.info("access.joined", name=row.name, role=row.role, region=row.region, version=version[:40])
        return Joined(credential=str(credential), role=Role(row.role), name=row.name, region=row.region)

    async def listed(self) -> AccessList:
        """Every credential, and every invitation that is open."""
        now_at = self._clock()
        async with self._database.connection() as connection:
            rows = await access.credentials(connection)
            invited = [row for row in await access.invitations(connection) if row.is_open(now_at)]
        return AccessList(access=(*(_access(row, now_at) for row in rows), *(_open(row) for row in invited)))

    async def revoke(self, name: str) -> int:
        """End all credentials and open invitations of a name, at once here and within seconds elsewhere; how many.

        Raises `UnknownName`.
        """
        async with self._database.transaction() as connection:
            await access.lock(connection)
            names = await _names(connection)
            if name not in names:
                raise UnknownName.among("name", name, names)
            revoked = await access.revoke(connection, name, revoked_at=self._clock())
        await self._changed()
        _log.info("access.revoked", name=name, revoked=revoked)
        return revoked

    async def operator(self, name: str, kept: Credential | None) -> Credential:
        """An operator's credential: the one `kept` if it is still good, else a new one."""
        now_at = self._clock()
        async with self._database.transaction() as connection:
            found = await access.credential(connection, kept.id) if kept else None
            if kept and found and _is_operators(found, kept, now_at):
                return kept
            made = Credential(id=_new_id(), secret=_new_secret())
            await access.grant(
                connection,
                credential_id=made.id,
                name=name,
                role=Role.OPERATOR,
                secret_hash=hash_secret(made.secret),
                created_at=now_at,
            )
        await self._changed()
        _log.info("access.granted", name=name, role=Role.OPERATOR.value)
        return made

    async def forget(self, credential: Credential) -> None:
        """End one credential, whose file is about to go."""
        async with self._database.connection() as connection:
            await access.revoke_credential(connection, credential.id, revoked_at=self._clock())

    async def _known(self, connection: Connection, name: str, role: str) -> tuple[str, str | None]:
        """Role and region of a name that may be rotated."""
        now_at = self._clock()
        good = [row for row in await access.credentials(connection) if row.is_valid(now_at)]
        invited = [row for row in await access.invitations(connection) if row.is_open(now_at)]
        known: list[CredentialRow | InvitationRow] = [*good, *invited]
        found = [(row.role, row.region) for row in known if row.name == name]
        if not found:
            raise UnknownName.among("name", name, {row.name for row in known})
        if role and found[-1][0] != role:
            raise Conflict(f"{name!r} is a {found[-1][0]} here, not a {role}")
        return found[-1]

    async def _check_new(self, connection: Connection, name: str, region: str | None) -> None:
        now_at = self._clock()
        if any(row.name == name and row.is_valid(now_at) for row in await access.credentials(connection)):
            raise Conflict(f"{name!r} has joined already; rotate its credential, or revoke it first")
        if any(row.name == name and row.is_open(now_at) for row in await access.invitations(connection)):
            raise Conflict(f"{name!r} is invited already; rotate for another token, or revoke the one there is")
        seen = {row.name: row.region for row in await vantages.vantages(connection)} if region else {}
        if seen.get(name, region) != region:
            raise Conflict(
                f"vantage {name!r} has delivered from {seen[name]!r}; a vantage keeps its region, so take another name"
            )


def _check_times(expires_us: int, overlap_us: int) -> None:
    if not 0 < expires_us <= MAX_EXPIRES_US:
        raise BadRequest("a join token is good for more than nothing and at most 30 days")
    if not 0 <= overlap_us <= MAX_OVERLAP_US:
        raise BadRequest("credentials may overlap for at most 30 days")


def _check_names(name: str, role: str, region: str | None) -> None:
    if role not in set(Role):
        raise BadRequest(f"unknown role {role!r}; there are vantage, reader and operator")
    if not _NAME.fullmatch(name):
        raise BadRequest("a name is 1 to 63 letters, digits, dots, dashes, underscores and @, a letter or digit first")
    if (role == Role.VANTAGE) != (region is not None):
        raise BadRequest("a vantage has a region, and nobody else has")
    if region is not None and not _NAME.fullmatch(region):
        raise BadRequest("a region is named like a vantage, for example ap-southeast-1")


def _checked(row: InvitationRow | None, token: JoinToken, now_at: int) -> InvitationRow:
    if row is None or not hmac.compare_digest(row.secret_hash, hash_secret(token.secret)):
        raise NotAdmitted("this collector did not make the join token")
    if row.used_at is not None:
        raise NotAdmitted(f"the join token of {row.name!r} has been used already; a token is good once")
    if row.revoked_at is not None:
        raise NotAdmitted(f"the join token of {row.name!r} has been revoked")
    if not row.is_open(now_at):
        raise NotAdmitted(f"the join token of {row.name!r} has expired; ask for another")
    return row


def _is_operators(row: CredentialRow, kept: Credential, now_at: int) -> bool:
    known = hmac.compare_digest(row.secret_hash, hash_secret(kept.secret))
    return known and row.role == Role.OPERATOR and row.is_valid(now_at)


async def _names(connection: Connection) -> set[str]:
    credentials = await access.credentials(connection)
    invited = await access.invitations(connection)
    return {row.name for row in credentials} | {row.name for row in invited}


def _access(row: CredentialRow, now_at: int) -> Access:
    ended = AccessState.EXPIRED if row.revoked_at is None else AccessState.REVOKED
    return Access(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        region=row.region,
        state=AccessState.ACTIVE if row.is_valid(now_at) else ended,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )


def _open(row: InvitationRow) -> Access:
    return Access(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        region=row.region,
        state=AccessState.INVITED,
        created_at=row.created_at,
        expires_at=row.expires_at,
    )


def _new_id() -> int:
    return secrets.randbits(_ID_BITS) or 1


def _new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)
