"""Access of streams, checked again while they run."""

import asyncio
from typing import NoReturn

import pytest

from isochrone_collector.auth import stream_access
from isochrone_collector.auth.stream_access import while_valid
from isochrone_collector.errors import DatabaseUnavailable, NotAdmitted


async def test_work_ends_with_its_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is cancelled, and has ended when the error arrives."""
    monkeypatch.setattr(stream_access, "RECHECK_S", 0.01)
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def revoked() -> NoReturn:
        raise NotAdmitted("revoked")

    with pytest.raises(NotAdmitted):
        await while_valid(work(), revoked)
    assert ended == [True]


async def test_work_goes_on_while_access_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unavailable database ends no stream, and the result of the work is returned."""
    monkeypatch.setattr(stream_access, "RECHECK_S", 0.01)
    checks: list[int] = []

    async def work() -> int:
        while len(checks) < 3:
            await asyncio.sleep(0.001)
        return 7

    async def unavailable() -> NoReturn:
        checks.append(1)
        raise DatabaseUnavailable("away")

    assert await while_valid(work(), unavailable) == 7
