"""Answers that callers share: one query for all who accept its age, and an own one for the others."""

import asyncio

import pytest
from starlette.datastructures import Headers

from isochrone_collector.errors import BadRequest
from isochrone_collector.http_api import queries
from isochrone_collector.http_api.queries import PAGE_AGE_S, SharedAnswers, max_age_s

WITHIN_S = 20.0


@pytest.fixture(autouse=True)
def share_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share answers for longer than a busy machine takes for a test."""
    monkeypatch.setattr(queries, "MIN_SHARED_S", 1000.0)


class Query:
    """A query that counts its runs and waits until it is released."""

    def __init__(self) -> None:
        self.runs = 0
        self.released = asyncio.Event()

    async def __call__(self) -> int:
        self.runs += 1
        run = self.runs
        await self.released.wait()
        return run


async def failing() -> int:
    raise BadRequest("no")


async def test_callers_at_the_same_time_share_a_query() -> None:
    """A query that runs answers all of its callers, also if the first one disconnects."""
    shared, query = SharedAnswers[int](), Query()
    async with asyncio.timeout(WITHIN_S):
        first, *others = (asyncio.ensure_future(shared.get("a", query, max_age_s=10)) for _ in range(3))
        other = asyncio.ensure_future(shared.get("b", query, max_age_s=10))
        await asyncio.sleep(0)
        first.cancel()
        query.released.set()
        assert [(await one)[0] for one in others] == [1, 1]
        assert (await other)[0] == 2
    assert first.cancelled()


async def test_an_answer_is_as_old_as_the_caller_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is as old as the caller accepts, and a fast query is repeated after a while."""
    shared, query = SharedAnswers[int](), Query()
    query.released.set()
    assert (await shared.get("a", query, max_age_s=10))[0] == 1
    assert await shared.get("a", query, max_age_s=0) == (2, 0.0)
    answer, age_s = await shared.get("a", query, max_age_s=10)
    assert (answer, age_s > 0) == (1, True)
    await asyncio.sleep(0.02)
    assert (await shared.get("a", query, max_age_s=0.01))[0] == 3
    monkeypatch.setattr(queries, "MIN_SHARED_S", 0.0)
    monkeypatch.setattr(queries, "_SHARED_SHARE", 0)
    shared, query = SharedAnswers[int](), Query()
    query.released.set()
    assert (await shared.get("a", query, max_age_s=1000))[0] == 1
    await asyncio.sleep(0.02)
    assert (await shared.get("a", query, max_age_s=1000))[0] == 2


async def test_a_failure_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """All who wait for a query get its error, which is not kept; the oldest answer is forgotten first."""
    shared, query = SharedAnswers[int](), Query()
    query.released.set()
    for _ in range(2):
        with pytest.raises(BadRequest):
            await shared.get("a", failing, max_age_s=10)
    assert (await shared.get("a", query, max_age_s=10))[0] == 1
    monkeypatch.setattr(queries, "_MAX_ENTRIES", 2)
    shared, query = SharedAnswers[int](), Query()
    query.released.set()
    for key in ("a", "b", "c", "b", "a"):
        await shared.get(key, query, max_age_s=10)
    assert query.runs == 4


@pytest.mark.parametrize(
    ("headers", "age_s"),
    [
        ({}, 0),
        ({"cache-control": "no-cache"}, 0),
        ({"cache-control": "max-age=10"}, 10),
        ({"cache-control": "no-transform, max-age=3"}, 3),
        ({"cache-control": "s-max-age=3"}, 0),
        ({"sec-fetch-site": "same-origin"}, PAGE_AGE_S),
        ({"sec-fetch-site": "same-origin", "cache-control": "max-age=0"}, 0),
        ({"sec-fetch-site": "none"}, 0),
    ],
)
def test_the_accepted_age(headers: dict[str, str], age_s: float) -> None:
    """It is the directive max-age; requests that a browser sends before the script of the page have none."""
    assert max_age_s(Headers(headers)) == age_s
