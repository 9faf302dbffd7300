"""Sessions of browsers: tokens that stand for a credential until they end."""

import pytest

from isochrone_collector.auth.authenticator import LIFETIME_US, MAX_SESSIONS, Sessions
from isochrone_collector.errors import Unauthenticated


def test_a_token_stands_for_its_credential() -> None:
    """Each session has its own token, and an unknown token has none."""
    sessions = Sessions(clock=lambda: 0)
    first, second = sessions.begin(7), sessions.begin(8)
    assert first != second
    assert (sessions.credential_id(first), sessions.credential_id(second)) == (7, 8)
    with pytest.raises(Unauthenticated, match="log in again"):
        sessions.credential_id(first[:-1])


def test_a_session_ends_by_a_logout_and_by_its_age() -> None:
    """Ending one does not end the others; each ends after its lifetime."""
    now = 0
    sessions = Sessions(clock=lambda: now)
    ended, kept = sessions.begin(7), sessions.begin(7)
    sessions.end(ended)
    sessions.end("unknown")
    with pytest.raises(Unauthenticated):
        sessions.credential_id(ended)
    now = LIFETIME_US - 1
    assert sessions.credential_id(kept) == 7
    now = LIFETIME_US
    with pytest.raises(Unauthenticated):
        sessions.credential_id(kept)


def test_a_credential_has_a_limited_number_of_sessions() -> None:
    """A further session ends the oldest of the same credential, and of no other."""
    sessions = Sessions(clock=lambda: 0)
    other = sessions.begin(8)
    tokens = [sessions.begin(7) for _ in range(MAX_SESSIONS + 1)]
    assert [sessions.credential_id(token) for token in (other, *tokens[1:])] == [8, *[7] * MAX_SESSIONS]
    with pytest.raises(Unauthenticated):
        sessions.credential_id(tokens[0])


def test_no_token_is_kept() -> None:
    """The memory has a hash of the token only."""
    sessions = Sessions(clock=lambda: 0)
    token = sessions.begin(7)
    assert token.encode() not in b" ".join(sessions._open)
