"""Who asks, and whether they may: every call that is not open to all passes here.

Credentials are looked up in a copy. Every second their counts are looked at, and the copy is read again when those
have changed, so that what another collector revoked ends here within seconds and what this one revoked ends at once;
and once a minute whatever the counts say, for whoever changed a row by hand. An id that the copy does not hold is
looked up in the database before anybody is turned away, for it may have joined a moment ago elsewhere. Secrets are
compared by hash, in a time that does not depend on them.
"""

import asyncio
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from isochrone_collector.auth.rate_limit import Bucket
from isochrone_collector.errors import Forbidden, NotAdmitted, TooMany
from isochrone_collector.store import access
from isochrone_collector.store.access import CredentialCounts, CredentialRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.credentials import Credential, hash_secret, parse_credential
from isochrone_wire.model import SECOND_US, Vantage
from isochrone_wire.operations import Role

_NOTE_USE_EVERY_US = 60 * SECOND_US
_READ_ANYWAY_EVERY_US = 60 * SECOND_US
_STRANGERS_PER_SECOND = 50.0
_BEARER = "bearer "

Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody known. `region` is a vantage's."""

    role: Role
    name: str
    region: str | None = None


LOCAL = Principal(role=Role.OPERATOR, name="local")
"""Any process of this machine, where plain text is spoken."""


class Authenticator:
    """Knows the credentials. Where none are `required` everybody is `LOCAL`, and nothing is looked at."""

    def __init__(self, *, database: Database, clock: Callable[[], int], required: bool) -> None:
        self._database = database
        self._clock = clock
        self._required = required
        self._known: dict[int, CredentialRow] = {}
        self._counts: CredentialCounts | None = None
        self._read_at = 0
        self._reading = asyncio.Lock()
        self._used: dict[int, int] = {}
        # When the use of a credential was last written down, as far as this collector knows.
        self._noted: dict[int, int] = {}
        self._strangers = Bucket(per_second=_STRANGERS_PER_SECOND, burst=2 * _STRANGERS_PER_SECOND)

    async def refresh(self) -> None:
        """Learn what has changed about credentials, and record which were used. Raises `DatabaseUnavailable`."""
        if not self._required:
            return
        # One at a time: an older copy must not take the place of a newer one.
        async with self._reading, self._database.connection() as connection:
            counts = await access.counts(connection)
            if counts != self._counts or not 0 <= self._clock() - self._read_at < _READ_ANYWAY_EVERY_US:
                # What changes between the two looks is seen by the next one.
                rows = await access.credentials(connection)
                self._known = {row.id: row for row in rows}
                self._counts, self._read_at = counts, self._clock()
            await self._note_use(connection)

    async def admit(self, metadata: Metadata | None, roles: Iterable[Role]) -> Principal:
        """Who calls with this metadata. Raises `NotAdmitted` when that is nobody, `Forbidden` when they have another
        role, `TooMany` and `DatabaseUnavailable` when it cannot be found out now.
        """
        if not self._required:
            return LOCAL
        row = await self._bearer(metadata)
        if row.role not in set(roles):
            raise Forbidden(f"{row.name!r} is a {row.role} here, and this takes {_either(roles)}")
        self._used[row.id] = self._clock()
        return Principal(role=Role(row.role), name=row.name, region=row.region)

    async def bind(self, metadata: Metadata | None, vantage: Vantage) -> None:
        """Whether whoever calls is that vantage, in that region. Raises as `admit`."""
        who = await self.admit(metadata, (Role.VANTAGE,))
        if who is not LOCAL and (who.name, who.region) != (vantage.name, vantage.region):
            raise Forbidden(
                f"this credential is of vantage {who.name!r} in {who.region!r}; "
                f"it cannot speak for {vantage.name!r} in {vantage.region!r}"
            )

    async def _bearer(self, metadata: Metadata | None) -> CredentialRow:
        said = _parsed(metadata)
        row = self._known.get(said.id) or await self._stranger(said.id)
        if row is None or not hmac.compare_digest(row.secret_hash, hash_secret(said.secret)):
            raise NotAdmitted("this collector does not know the credential")
        if row.revoked_at is not None:
            raise NotAdmitted(f"the credential of {row.name!r} has been revoked")
        if not row.is_valid(self._clock()):
            raise NotAdmitted(f"the credential of {row.name!r} has expired, because a newer one was taken")
        return row

    async def _stranger(self, credential_id: int) -> CredentialRow | None:
        if not self._strangers.take(self._clock()):
            raise TooMany("too many unknown credentials at once; try again in a moment")
        async with self._database.connection() as connection:
            row = await access.credential(connection, credential_id)
        if row is not None:
            self._known[row.id] = row
        return row

    async def _note_use(self, connection: Connection) -> None:
        used, self._used = self._used, {}
        fresh = [key for key, at in used.items() if at - self._noted_at(key) > _NOTE_USE_EVERY_US]
        if fresh:
            now_at = self._clock()
            await access.record_use(connection, fresh, used_at=now_at)
            self._noted |= dict.fromkeys(fresh, now_at)

    def _noted_at(self, credential_id: int) -> int:
        row = self._known.get(credential_id)
        return max(self._noted.get(credential_id, 0), (row and row.last_used_at) or 0)


def _parsed(metadata: Metadata | None) -> Credential:
    """The credential in a call's metadata. Raises `NotAdmitted`, in a sentence that does not repeat it."""
    said = next((value for key, value in metadata or () if key == "authorization"), None)
    if said is None:
        raise NotAdmitted("no credential was sent; join this collector first")
    text = said if isinstance(said, str) else said.decode("ascii", "replace")
    if not text.lower().startswith(_BEARER):
        raise NotAdmitted("the authorization is not of the form `Bearer isochrone-key-…`")
    try:
        return parse_credential(text[len(_BEARER) :])
    except ValueError as error:
        raise NotAdmitted(str(error)) from None


def _either(roles: Iterable[Role]) -> str:
    return " or ".join(f"a{'n' if role is Role.OPERATOR else ''} {role.value}" for role in roles)
