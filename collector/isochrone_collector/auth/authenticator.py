"""Authentication and authorisation of calls, by credential and role.

Credentials are looked up in a copy in memory. Their counts in the database are read every second, and the copy is
reloaded when they have changed: a revocation is effective at once at the collector that made it, and within seconds at
the others. The copy is also reloaded every minute, for rows that were changed by hand. An id that the copy lacks is
looked up in the database, because it may have joined at another collector a moment ago. Secrets are compared by hash,
in constant time.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from isochrone_collector.auth.limits import BucketPerKey, LeakyBucket, without_details
from isochrone_collector.errors import DatabaseUnavailable, Forbidden, ResourceExhausted, Unauthenticated
from isochrone_collector.store import access
from isochrone_collector.store.access import CredentialRow
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.trusted_proxy import TrustedProxy
from isochrone_common.credentials import Credential, hash_secret, parse_credential
from isochrone_wire.model import DAY_US, SECOND_US, Vantage
from isochrone_wire.operations import Role, is_expiring

LIFETIME_US = 7 * DAY_US
"""Longest duration of a session, in microseconds."""

MAX_SESSIONS = 100
"""Maximum number of sessions of one credential; a further one ends the oldest."""

LINK_LIFETIME_US = 60 * SECOND_US
"""The time in which a link begins a session, in microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    credential_id: int
    ends_at: int


@dataclass(eq=False, kw_only=True)
class Sessions:
    """The sessions of one collector; `clock` returns microseconds since the epoch."""

    clock: Callable[[], int]

    def __post_init__(self) -> None:
        # By the hash of the token, in the order in which they began; links are sessions that are not yet open.
        self._open: dict[bytes, _Session] = {}
        self._links: dict[bytes, _Session] = {}

    def begin(self, credential_id: int) -> str:
        """Begin a session for a valid credential and return its token."""
        return self._add(self._open, credential_id, LIFETIME_US)

    def link(self, credential_id: int) -> str:
        """Return a token with which `follow` begins one session for a valid credential, within `LINK_LIFETIME_US`."""
        return self._add(self._links, credential_id, LINK_LIFETIME_US)

    def follow(self, token: str) -> str:
        """Begin the session of a link and return its token. Raises `Unauthenticated` if it was used or has ended."""
        found = self._links.pop(_hash_of(token), None)
        if found is None or self.clock() >= found.ends_at:
            raise Unauthenticated("the link was used, or is older than a minute; `isochrone page` prints another")
        return self.begin(found.credential_id)

    def _add(self, to: dict[bytes, _Session], credential_id: int, lifetime_us: int) -> str:
        now_at = self.clock()
        for key in [key for key, one in to.items() if now_at >= one.ends_at]:
            del to[key]
        own = [key for key, one in to.items() if one.credential_id == credential_id]
        for key in own[: max(0, len(own) - MAX_SESSIONS + 1)]:
            del to[key]
        token = secrets.token_urlsafe(32)
        to[_hash_of(token)] = _Session(credential_id=credential_id, ends_at=now_at + lifetime_us)
        return token

    def credential_id(self, token: str) -> int:
        """Return the id of the credential behind a session. Raises `Unauthenticated` if it has ended."""
        found = self._open.get(_hash_of(token))
        if found is None or self.clock() >= found.ends_at:
            raise Unauthenticated("the session has ended; log in again")
        return found.credential_id

    def end(self, token: str) -> None:
        """End a session, if it exists."""
        self._open.pop(_hash_of(token), None)


def _hash_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


_RECORD_USE_EVERY_US = 60 * SECOND_US
_FULL_READ_EVERY_US = 60 * SECOND_US
_UNKNOWN_PER_SECOND = 50.0
# Time for calls in flight, and for other processes with the same identity file.
_RENEWED_OVERLAP_US = 600 * SECOND_US
_BEARER = "bearer "
_USERS_LOGGED_PER_SECOND = 1 / 3600

Metadata = Iterable[tuple[str, str | bytes]]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller, or one that needs no credential. Only a vantage has a `region`."""

    role: Role
    name: str
    region: str | None = None
    has_credential: bool = True

    @property
    def key(self) -> str | None:
        """The key that counts calls of this caller; `None` without a credential, because such callers share a name."""
        return f"{self.role} {self.name}" if self.has_credential else None


LOCAL = Principal(role=Role.OPERATOR, name="local", has_credential=False)
"""The caller of a collector that trusts loopback: any process of this machine."""


@dataclass(eq=False, kw_only=True)
class Authenticator:
    """The collector's copy of the credentials. Unless credentials are `required`, every caller is `local`. `sessions`
    are those of browsers, and `proxy` authenticates its users.
    """

    database: Database
    clock: Callable[[], int]
    required: bool
    local: Principal = LOCAL
    proxy: TrustedProxy | None = None

    def __post_init__(self) -> None:
        self.sessions = Sessions(clock=self.clock)
        self._logged_users = BucketPerKey(per_second=_USERS_LOGGED_PER_SECOND, burst=1)
        self._known: dict[int, CredentialRow] = {}
        self._counts: tuple[int, ...] = ()
        self._read_at = 0
        self._reading = asyncio.Lock()
        self._used: dict[int, int] = {}
        # Credential → the instant at which this collector last recorded its use.
        self._recorded_at: dict[int, int] = {}
        self._unknown_lookups = LeakyBucket(per_second=_UNKNOWN_PER_SECOND, burst=2 * _UNKNOWN_PER_SECOND)

    async def refresh(self) -> None:
        """Reload credentials if they have changed, and record which were used. Raises `DatabaseUnavailable`."""
        if not self.required:
            return
        # One at a time: an older copy must not replace a newer one.
        async with self._reading, self.database.connection() as connection:
            counts = await access.counts(connection)
            if counts != self._counts or not 0 <= self.clock() - self._read_at < _FULL_READ_EVERY_US:
                # The next refresh sees what changes between these two queries.
                rows = await access.credentials(connection)
                self._known = {row.id: row for row in rows}
                self._counts, self._read_at = counts, self.clock()
            used, self._used = self._used, {}
            fresh = [key for key, at in used.items() if at - self._last_recorded_at(key) > _RECORD_USE_EVERY_US]
            if fresh:
                now_at = self.clock()
                # The database knows which of them are successors: a copy may lack one that was renewed a moment ago.
                await access.end_renewed(connection, fresh, expires_at=now_at + _RENEWED_OVERLAP_US)
                await access.record_use(connection, fresh, used_at=now_at)
                self._recorded_at |= dict.fromkeys(fresh, now_at)

    def expiring(self) -> int:
        """Return the number of names whose newest valid credential is about to expire."""
        now_at = self.clock()
        # In the order in which they were made.
        newest = {row.name: row for row in self._known.values() if row.is_valid(now_at)}
        lasting = (row for row in newest.values() if row.ends_with_lifetime)
        return sum(is_expiring(row.renew_at, row.expires_at, now_at) for row in lasting)

    async def authenticate(self, metadata: Metadata | None, roles: Iterable[Role]) -> Principal:
        """Return the caller with this metadata. Raises `Unauthenticated` for an invalid credential, `Forbidden` for
        another role, and `ResourceExhausted` or `DatabaseUnavailable` when the credential cannot be checked now.
        """
        if not self.required:
            return self.local
        credential = bearer_credential(metadata)
        row = await self._find(credential.id)
        if row is None or not hmac.compare_digest(row.secret_hash, hash_secret(credential.secret)):
            raise Unauthenticated("this collector does not know the credential")
        return self._admit(row, roles)

    async def authenticate_session(self, token: str, roles: Iterable[Role]) -> Principal:
        """Return the caller with this session, whose credential must still be valid. Raises as `authenticate`."""
        if not self.required:
            return self.local
        row = await self._find(self.sessions.credential_id(token))
        if row is None:
            raise Unauthenticated("this collector does not know the credential of the session")
        return self._admit(row, roles)

    def authenticate_proxy(self, headers: Callable[[str], Sequence[str]], address: str) -> Principal | None:
        """Return the user in a trusted proxy's header of a request from an IP address, as a reader `oidc:USER`; `None`
        without a proxy, and for requests of others. Each user is logged once an hour. Raises `Unauthenticated` for a
        user that cannot be read.
        """
        user = self.proxy.user_of(headers, address) if self.proxy and self.required else None
        if user is None:
            return None
        principal = Principal(role=Role.READER, name=f"oidc:{user}")
        if self._logged_users.take(principal.name, self.clock()):
            _log.info("reader.proxied", principal=principal.name, proxy=address)
        return principal

    async def require_vantage(self, metadata: Metadata | None, vantage: Vantage) -> None:
        """Check that the caller is that vantage, in that region. Raises like `authenticate`, and `Forbidden`."""
        caller = await self.authenticate(metadata, (Role.VANTAGE,))
        if caller.has_credential and (caller.name, caller.region) != (vantage.name, vantage.region):
            raise Forbidden(
                f"this credential belongs to vantage {caller.name!r} in {caller.region!r}; "
                f"it cannot speak for {vantage.name!r} in {vantage.region!r}"
            )

    def _admit(self, row: CredentialRow, roles: Iterable[Role]) -> Principal:
        if row.revoked_at is not None:
            raise Unauthenticated(f"the credential of {row.name!r} has been revoked")
        if not row.is_valid(self.clock()):
            reason = (
                "at the end of its lifetime; join again" if row.ends_with_lifetime else "because a newer one is in use"
            )
            raise Unauthenticated(f"the credential of {row.name!r} has expired, {reason}")
        if row.role not in set(roles):
            either = " or ".join(f"a{'n' if role is Role.OPERATOR else ''} {role.value}" for role in roles)
            raise Forbidden(f"{row.name!r} has the role {row.role} here, and this call requires {either}")
        self._used[row.id] = self.clock()
        return Principal(role=Role(row.role), name=row.name, region=row.region)

    async def _find(self, credential_id: int) -> CredentialRow | None:
        if credential_id in self._known:
            return self._known[credential_id]
        if not self._unknown_lookups.take(self.clock()):
            raise ResourceExhausted("too many unknown credentials at once; try again in a moment")
        with without_details():
            async with self.database.connection() as connection:
                row = await access.credential(connection, credential_id)
        if row is not None:
            self._known[row.id] = row
        return row

    def _last_recorded_at(self, credential_id: int) -> int:
        row = self._known.get(credential_id)
        return max(self._recorded_at.get(credential_id, 0), (row and row.last_used_at) or 0)


def bearer_credential(metadata: Metadata | None) -> Credential:
    """Return the credential in a call's metadata. Raises `Unauthenticated`, without repeating the credential."""
    value = next((value for key, value in metadata or () if key == "authorization"), None)
    if value is None:
        raise Unauthenticated("no credential was sent; join this collector first")
    text = value if isinstance(value, str) else value.decode("ascii", "replace")
    if not text.lower().startswith(_BEARER):
        raise Unauthenticated("the authorization is not of the form `Bearer isochrone-key-…`")
    try:
        return parse_credential(text[len(_BEARER) :])
    except ValueError as error:
        raise Unauthenticated(str(error)) from None


RECHECK_S = 2.0
"""Interval at which the credential of a stream is checked again, in seconds."""

MAX_WATCHES = 2_000
"""Maximum number of watches of route tables of one caller, over gRPC and over HTTP."""

_Result = TypeVar("_Result")


async def while_valid(work: Coroutine[Any, Any, _Result], recheck: Callable[[], Awaitable[object]] | None) -> _Result:
    """Return the result of `work`; cancel it when `recheck`, called every two seconds, raises that access has ended.
    Access to open calls, without `recheck`, does not end.
    """
    if recheck is None:
        return await work
    task = asyncio.ensure_future(work)
    # Its own task, because a thousand streams wait all the time: a timeout for `task` would cost twice as much.
    checks = asyncio.ensure_future(_check_until_done(task, recheck))
    try:
        await asyncio.wait({task, checks}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            checks.result()
        return task.result()
    finally:
        task.cancel()
        checks.cancel()
        await asyncio.gather(task, checks, return_exceptions=True)
        # Their errors refer to this frame, which would keep the call until garbage is collected.
        del task, checks


async def _check_until_done(work: "asyncio.Future[Any]", recheck: Callable[[], Awaitable[object]]) -> None:
    """Raise as soon as `recheck` says that access has ended, and return once the work is done."""
    # Not until it is cancelled: a check that is cancelled may end with another error.
    while not work.done():
        await asyncio.sleep(RECHECK_S)
        # While it cannot be checked, access continues.
        with suppress(DatabaseUnavailable, ResourceExhausted):
            await recheck()
