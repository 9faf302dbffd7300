"""Short names over a real socket: the collector receives full names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fixtures.fake_collector import WINDOW, FakeCollector
from isochrone_client.client import ReadClient
from isochrone_client.errors import AmbiguousError, RefusedError
from isochrone_wire.answers import Selection

SHORT = Selection(window=WINDOW, regions=("us-east",), targets=("gpt-5-mini",))
ASKS: list[Callable[[ReadClient], Any]] = [
    lambda client: client.list_samples(SHORT, limit=5),
    lambda client: client.get_leaderboard(SHORT),
    lambda client: client.get_coverage(SHORT),
    lambda client: client.get_latency_budgets(SHORT),
    lambda client: client.get_tiers(SHORT),
    lambda client: client.list_drift(SHORT),
    lambda client: client.simulate(SHORT),
    lambda client: list(client.export_samples(SHORT)),
]


@pytest.fixture
def strict(observatory: FakeCollector) -> FakeCollector:
    """A fake that knows two regions and refuses others, like a collector."""
    observatory.regions = frozenset({"us-east-2", "ap-southeast-1"})
    return observatory


@pytest.mark.parametrize("ask", ASKS)
def test_every_request_takes_short_names(strict: FakeCollector, ask: Callable[[ReadClient], Any]) -> None:
    """A short name is expanded and the request is repeated, for every kind of request."""
    with ReadClient(strict.address) as client:
        assert ask(client)
    request = strict.requests[-1]
    assert (request.all("region"), request.all("target")) == (["us-east-2"], ["openai/gpt-5-mini"])


def test_baselines_take_short_names(strict: FakeCollector) -> None:
    """Both sides of a differential may have short names."""
    with ReadClient(strict.address) as client:
        answer = client.get_differentials(Selection(window=WINDOW), baseline="us", against=("ap",))
    assert {(row.baseline, row.region) for row in answer.differentials} == {("us-east-2", "ap-southeast-1")}
    request = strict.requests[-1]
    assert (request.one("baseline"), request.all("against")) == ("us-east-2", ["ap-southeast-1"])


def test_full_names_need_no_lookup(strict: FakeCollector) -> None:
    """A request with full names is sent once, without a lookup."""
    with ReadClient(strict.address) as client:
        client.get_coverage(Selection(window=WINDOW, regions=("us-east-2",), targets=("openai/*",)))
    assert len(strict.requests) == 1


def test_an_unknown_name_gets_the_collectors_refusal(strict: FakeCollector) -> None:
    """A name that cannot be expanded gets the collector's refusal, and the request is not repeated."""
    with ReadClient(strict.address) as client, pytest.raises(RefusedError, match="no region is called 'mars'"):
        client.get_coverage(Selection(window=WINDOW, regions=("mars",)))
    assert [request.path for request in strict.requests].count("/v1/coverage") == 1


def test_an_ambiguous_name_is_refused_by_the_client(observatory: FakeCollector) -> None:
    """A name that matches several targets is an error."""
    sold = tuple(replace(target, name=f"{target.provider}/x", model="x") for target in observatory.targets.targets)
    observatory.targets = replace(observatory.targets, targets=sold)
    with ReadClient(observatory.address) as client, pytest.raises(AmbiguousError, match="2 targets"):
        client.get_tiers(Selection(window=WINDOW, targets=("x",)))


def test_a_refused_lookup_leaves_the_refusal(observatory: FakeCollector) -> None:
    """If the lookup of names fails too, the first refusal is raised."""
    observatory.failure = ("unknown-name", "no target is called 'x'")
    with ReadClient(observatory.address) as client, pytest.raises(RefusedError, match="called 'x'"):
        client.get_tiers(Selection(window=WINDOW, targets=("x",)))
