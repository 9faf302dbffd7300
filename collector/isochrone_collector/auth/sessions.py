"""Sessions of browsers: a random token in a cookie stands for a credential that was presented once.

A session ends with its credential, after `LIFETIME_US`, by a logout, and with the process. Only hashes of tokens are
kept, so that no token can be read from the memory of the collector.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from isochrone_collector.errors import NotAdmitted
from isochrone_wire.model import DAY_US

LIFETIME_US = 7 * DAY_US
"""Longest duration of a session, in microseconds."""

MAX_SESSIONS = 100
"""Maximum number of sessions of one credential; a further one ends the oldest."""

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    credential_id: int
    ends_at: int


class Sessions:
    """The sessions of one collector; `clock` returns microseconds since the epoch."""

    def __init__(self, *, clock: Callable[[], int]) -> None:
        self._clock = clock
        # By the hash of the token, in the order in which they began.
        self._open: dict[bytes, _Session] = {}

    def begin(self, credential_id: int) -> str:
        """Begin a session for a valid credential and return its token."""
        now_at = self._clock()
        self._open = {key: one for key, one in self._open.items() if now_at < one.ends_at}
        own = [key for key, one in self._open.items() if one.credential_id == credential_id]
        for key in own[: max(0, len(own) - MAX_SESSIONS + 1)]:
            del self._open[key]
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._open[_key(token)] = _Session(credential_id=credential_id, ends_at=now_at + LIFETIME_US)
        return token

    def credential_id(self, token: str) -> int:
        """Return the id of the credential behind a session. Raises `NotAdmitted` if it has ended."""
        found = self._open.get(_key(token))
        if found is None or self._clock() >= found.ends_at:
            raise NotAdmitted("the session has ended; log in again")
        return found.credential_id

    def end(self, token: str) -> None:
        """End a session, if it exists."""
        self._open.pop(_key(token), None)


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
