"""Sessions of browsers, and the access of streams while they run."""

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import NoReturn

import pytest

from isochrone_collector.auth import authenticator
from isochrone_collector.auth.authenticator import LIFETIME_US, MAX_SESSIONS, Sessions, while_valid
from isochrone_collector.errors import DatabaseUnavailable, Unauthenticated


async def test_work_ends_with_its_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is cancelled, and has ended when the error arrives."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.01)
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def revoked() -> NoReturn:
        raise Unauthenticated("revoked")

    with pytest.raises(Unauthenticated):
        await while_valid(work(), revoked)
    assert ended == [True]


async def test_a_check_that_hides_its_cancellation_does_not_keep_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is done while a check is in progress, which then ends with an error of its own."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.01)
    checking = asyncio.Event()

    async def work() -> int:
        await checking.wait()
        return 7

    async def lost() -> NoReturn:
        checking.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise DatabaseUnavailable("away")

    async with asyncio.timeout(5):
        assert await while_valid(work(), lost) == 7


async def test_a_call_whose_access_has_ended_is_forgotten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only when garbage is collected: until then its stream would stay open."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.01)

    class Call:
        """What the caller holds."""

    async def answer() -> "weakref.ref[Call]":
        call = Call()

        async def revoked() -> NoReturn:
            raise Unauthenticated("revoked")

        with suppress(Unauthenticated):
            await while_valid(asyncio.Event().wait(), revoked)
        return weakref.ref(call)

    gc.disable()
    try:
        found = await answer()
        # The event loop keeps what has ended until its next step.
        await asyncio.sleep(0)
        assert found() is None
    finally:
        gc.enable()


async def test_work_goes_on_while_access_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unavailable database ends no stream, and the result of the work is returned."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.01)
    checks: list[int] = []

    async def work() -> int:
        while len(checks) < 3:
            await asyncio.sleep(0.001)
        return 7

    async def unavailable() -> NoReturn:
        checks.append(1)
        raise DatabaseUnavailable("away")

    assert await while_valid(work(), unavailable) == 7


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
    """A further session ends the oldest of its credential only; the memory has a hash of the token."""
    sessions = Sessions(clock=lambda: 0)
    other = sessions.begin(8)
    tokens = [sessions.begin(7) for _ in range(MAX_SESSIONS + 1)]
    assert [sessions.credential_id(token) for token in (other, *tokens[1:])] == [8, *[7] * MAX_SESSIONS]
    with pytest.raises(Unauthenticated):
        sessions.credential_id(tokens[0])
    sessions = Sessions(clock=lambda: 0)
    token = sessions.begin(7)
    assert token.encode() not in b" ".join(sessions._open)
