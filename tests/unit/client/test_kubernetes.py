"""Route objects of a cluster follow the table, and nothing else changes; one replica at a time holds the lease."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_client.kubernetes.reconciler import DEADLINE_SECONDS, DURATION_SECONDS, Election
from isochrone_client.kubernetes.route_objects import AI_GATEWAY_ROUTE, HTTP_ROUTE, Kind, change_of
from isochrone_wire.routes import RouteTable
from testdata.routes import CHAT

FIRST, SECOND, THIRD = (entry.target for entry in CHAT.entries)
TARGETS = f"one={FIRST}, two={SECOND}\nthree={THIRD}"


def table(*weights: float) -> RouteTable:
    """The table of `chat` with these weights; members beyond them are left out."""
    entries = tuple(replace(entry, weight=weight) for entry, weight in zip(CHAT.entries, weights, strict=False))
    return replace(CHAT, entries=entries)


def route(*backends: str, targets: str = TARGETS, **more: Any) -> dict[str, Any]:
    refs = [{"name": name, "weight": 1, "port": 443} for name in backends]
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": refs, **more}
    metadata = {
        "name": "llm",
        "namespace": "gateway",
        "resourceVersion": "7",
        "labels": {"isochrone/route": "chat", "team": "a"},
        "annotations": {"isochrone/targets": targets},
    }
    return {"metadata": metadata, "spec": {"hostnames": ["llm.example"], "rules": [rule]}}


def shares(kind: Kind, live: dict[str, Any], of: RouteTable) -> list[tuple[int, int | None]]:
    """Weight and priority of each backend after the patch."""
    patch = change_of(kind, live, {"chat": of}).patch
    rules = (patch or live)["spec"]["rules"]
    return [(one["weight"], one.get("priority")) for one in rules[0]["backendRefs"]]


ALL = ("one", "two", "three")


@pytest.mark.parametrize(
    ("backends", "weights", "http", "ai"),
    [
        (ALL, (0.75, 0.25, 0.0), [750, 250, 0], [(750, 0), (250, 0), (1000, 1)]),
        (ALL, (0.0, 1.0, 0.0), [0, 1000, 0], [(1000, 1), (1000, 0), (1000, 2)]),
        # A member that is left out of the table gets nothing.
        (ALL, (1.0, 0.0), [1000, 0, 0], [(1000, 0), (1000, 1), (0, None)]),
        # The order of the backends is that of the object, and members elsewhere do not count.
        (("two", "one"), (0.5, 0.25, 0.25), [333, 667], [(333, 0), (667, 0)]),
        (("three", "two"), (1.0, 0.0, 0.0), [0, 1000], [(1000, 1), (1000, 0)]),
        # A small share is not lost, because a weight of 0 takes a backend out.
        (("one", "two"), (0.9999, 0.0001), [1000, 1], [(1000, 0), (1, 0)]),
    ],
)
def test_weights_and_priorities_follow(
    backends: tuple[str, ...], weights: tuple[float, ...], http: list[int], ai: list[tuple[int, int | None]]
) -> None:
    """The weights are those of the members of a rule; without weight a member is a fallback, where there are any."""
    assert shares(HTTP_ROUTE, route(*backends), table(*weights)) == [(weight, None) for weight in http]
    assert shares(AI_GATEWAY_ROUTE, route(*backends), table(*weights)) == ai


def test_nothing_else_changes() -> None:
    """The patch has the rules as they are but for the weights, the version read, and the generation; no other field."""
    live = route("one", "two", timeouts={"request": "60s"})
    before = deepcopy(live)
    patch = change_of(HTTP_ROUTE, live, {"chat": table(0.75, 0.25)}).patch
    assert live == before
    assert patch is not None
    assert set(patch) == {"apiVersion", "kind", "metadata", "spec"}
    assert patch["metadata"] == {
        "name": "llm",
        "namespace": "gateway",
        "resourceVersion": "7",
        "annotations": {"isochrone/generation": str(CHAT.generation)},
    }
    assert set(patch["spec"]) == {"rules"}
    for backend, weight in zip(before["spec"]["rules"][0]["backendRefs"], (750, 250), strict=True):
        backend["weight"] = weight
    assert patch["spec"]["rules"] == before["spec"]["rules"]


@pytest.mark.parametrize("kind", [HTTP_ROUTE, AI_GATEWAY_ROUTE], ids=lambda kind: kind.kind)
def test_an_object_that_follows_is_left_alone(kind: Kind) -> None:
    """After its patch an object needs no other one."""
    live = route(*ALL)
    patch = change_of(kind, live, {"chat": CHAT}).patch
    assert patch is not None
    live["spec"] |= patch["spec"]
    assert change_of(kind, live, {"chat": CHAT}).patch is None


@pytest.mark.parametrize(
    ("live", "problem"),
    [
        (route("one", "canary"), "HTTPRoute llm, rule 1: the backend canary has no target in isochrone/targets"),
        (route("one", targets="one=nobody/x"), "rule 1: no backend is a member of the table of chat"),
        (route("one", targets=""), "HTTPRoute llm: the annotation isochrone/targets is missing"),
    ],
)
def test_what_cannot_follow_is_reported_and_stays(live: dict[str, Any], problem: str) -> None:
    """A rule whose backends are not all known, or none of which is a member, keeps its weights."""
    change = change_of(HTTP_ROUTE, live, {"chat": CHAT})
    assert change.patch is None
    (sentence,) = change.problems
    assert problem in sentence


def test_an_unknown_route_is_reported() -> None:
    """An unknown route is reported; a rule that cannot follow does not keep the others from following."""
    change = change_of(HTTP_ROUTE, route("one"), {"voice": CHAT})
    assert change.patch is None
    assert change.problems == ("HTTPRoute llm: the route 'chat' has no table; known: voice",)
    live = route("canary")
    live["spec"]["rules"] += [{"filters": [{"type": "RequestRedirect"}]}, *route("one", "two")["spec"]["rules"]]
    change = change_of(HTTP_ROUTE, live, {"chat": table(0.75, 0.25)})
    assert change.patch is not None
    rules = change.patch["spec"]["rules"]
    assert rules[:2] == live["spec"]["rules"][:2]
    assert [one["weight"] for one in rules[2]["backendRefs"]] == [750, 250]
    assert len(change.problems) == 1


TIME = "2026-11-23T12:00:00.000000Z"


def take(one: Election, spec: dict[str, Any] | None, now: float) -> dict[str, Any] | None:
    """Let a candidate write the lease if it wants to; return the lease afterwards."""
    wanted = one.wanted(spec, now=now, renew_time=TIME.replace("12:00", f"12:{int(now) % 60:02}"))
    if wanted is None:
        return spec
    one.written(wanted, at=now)
    return wanted


def test_the_first_candidate_leads() -> None:
    """The first candidate leads while it renews; another waits its duration, by its own clock, unless nobody leads."""
    one = Election("a")
    spec = take(one, None, 100.0)
    assert spec is not None
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("a", 0)
    assert one.leads(100.0 + DEADLINE_SECONDS - 0.1)
    assert not one.leads(100.0 + DEADLINE_SECONDS)
    holder, other = Election("a"), Election("b")
    spec = take(holder, None, 0.0)
    for now in range(1, 100, 5):
        spec = take(holder, spec, float(now))
        assert other.wanted(spec, now=now + 1000.0, renew_time=TIME) is None
    holder, other = Election("a"), Election("b")
    spec = take(holder, None, 0.0)
    assert other.wanted(spec, now=5000.0, renew_time=TIME) is None
    assert other.wanted(spec, now=5000.0 + DURATION_SECONDS - 0.1, renew_time=TIME) is None
    taken = other.wanted(spec, now=5000.0 + DURATION_SECONDS, renew_time=TIME)
    assert taken is not None
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("b", 1)
    spec = dict(take(Election("a"), None, 0.0) or {}) | {"holderIdentity": ""}
    assert Election("b").wanted(spec, now=0.0, renew_time=TIME) is not None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 6.0), st.booleans()), min_size=1, max_size=80))
def test_two_never_lead(steps: list[tuple[str, float, bool]]) -> None:
    """Whoever acts when, at most one candidate leads at any instant; a write from an old version fails."""
    candidates = {name: Election(name) for name in "abc"}
    # Each has its own clock.
    offset = {"a": 0.0, "b": 5000.0, "c": 90.0}
    spec, now = None, 0.0
    for name, pause, is_slow in steps:
        now += pause
        one = candidates[name]
        before = spec
        wanted = one.wanted(before, now=now + offset[name], renew_time=f"{now}")
        if wanted is None:
            one.lost()
        elif is_slow:
            one.lost()  # another write came first, as far as it knows
        else:
            spec = wanted
            one.written(wanted, at=now + offset[name])
        leading = [name for name, one in candidates.items() if one.leads(now + offset[name])]
        assert len(leading) <= 1
