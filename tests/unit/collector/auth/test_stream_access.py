"""Access of streams, checked again while they run."""

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import NoReturn

import pytest

from isochrone_collector.auth import authenticator
from isochrone_collector.auth.authenticator import while_valid
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
