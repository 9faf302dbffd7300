"""Short names on a real socket: what a reader writes reaches the collector in full."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest

from fix_observatory import WINDOW, FakeObservatory
from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import AmbiguousError, RefusedError
from isochrone_wire.answers import Selection

SHORT = Selection(window=WINDOW, regions=("us-east",), targets=("gpt-5-mini",))
ASKS: list[Callable[[ObservatoryClient], Any]] = [
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
def strict(observatory: FakeObservatory) -> FakeObservatory:
    """An observatory that knows two regions and refuses others, as a collector does."""
    observatory.regions = frozenset({"us-east-2", "ap-southeast-1"})
    return observatory


@pytest.mark.parametrize("ask", ASKS)
def test_every_question_takes_short_names(strict: FakeObservatory, ask: Callable[[ObservatoryClient], Any]) -> None:
    """A short name is spelled out and the question asked again, whatever the question is."""
    with ObservatoryClient(strict.address) as client:
        assert ask(client)
    asked = strict.asked[-1].selection
    assert (list(asked.regions), list(asked.targets)) == (["us-east-2"], ["openai/gpt-5-mini"])


def test_baselines_take_short_names(strict: FakeObservatory) -> None:
    """The two sides of a differential may be shortened too."""
    with ObservatoryClient(strict.address) as client:
        answer = client.get_differentials(Selection(window=WINDOW), baseline="us", against=("ap",))
    assert {(row.baseline, row.region) for row in answer.differentials} == {("us-east-2", "ap-southeast-1")}
    assert (strict.asked[-1].baseline, list(strict.asked[-1].against)) == ("us-east-2", ["ap-southeast-1"])


def test_full_names_cost_nothing(strict: FakeObservatory) -> None:
    """A question in full names is asked once, and nothing is looked up for it."""
    with ObservatoryClient(strict.address) as client:
        client.get_coverage(Selection(window=WINDOW, regions=("us-east-2",), targets=("openai/*",)))
    assert len(strict.asked) == 1


def test_the_unknown_is_refused_in_the_collectors_words(strict: FakeObservatory) -> None:
    """What is short for nothing gets the collector's own refusal, and is not asked twice."""
    with ObservatoryClient(strict.address) as client, pytest.raises(RefusedError, match="no region is called 'mars'"):
        client.get_coverage(Selection(window=WINDOW, regions=("mars",)))
    assert [type(request).__name__ for request in strict.asked].count("GetCoverageRequest") == 1


def test_the_ambiguous_is_refused_here(observatory: FakeObservatory) -> None:
    """What may mean several targets is never guessed at."""
    sold = tuple(replace(target, name=f"{target.provider}/x", model="x") for target in observatory.targets.targets)
    observatory.targets = replace(observatory.targets, targets=sold)
    with ObservatoryClient(observatory.address) as client, pytest.raises(AmbiguousError, match="2 targets"):
        client.get_tiers(Selection(window=WINDOW, targets=("x",)))


def test_a_refused_lookup_leaves_the_refusal(observatory: FakeObservatory) -> None:
    """When the names cannot be looked up either, the first refusal is what the reader hears."""
    observatory.failure = (grpc.StatusCode.NOT_FOUND, "no target is called 'x'")
    with ObservatoryClient(observatory.address) as client, pytest.raises(RefusedError, match="called 'x'"):
        client.get_tiers(Selection(window=WINDOW, targets=("x",)))
