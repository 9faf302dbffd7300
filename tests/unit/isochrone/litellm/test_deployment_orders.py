"""The order in which LiteLLM tries deployments."""

from collections.abc import Sequence

import pytest

from isochrone.litellm.requests import deployment_orders, target_of
from isochrone_wire.routes import RouteEntry


def entries(**weights: float) -> list[RouteEntry]:
    """Members by name, in rank order, with their weights."""
    return [
        RouteEntry(
            rank=rank, weight=weight, target=f"x/{name}", provider="x", model=name, dialect="openai-chat", base_url="-"
        )
        for rank, (name, weight) in enumerate(weights.items(), start=1)
    ]


@pytest.mark.parametrize(
    ("deployment_id", "target"),
    [
        ("x/a", "x/a"),
        ("x/a@chat", "x/a"),
        ("x/a@2025", "x/a@2025"),
        ("x/a@2025@chat", "x/a@2025"),
        ("mine", "x/b"),
        ("x/c", None),
        ("d1f3", None),
        ("", None),
    ],
)
def test_target_of(deployment_id: str, target: str | None) -> None:
    """A deployment is named by the settings or by its id; targets may contain the character that makes ids unique."""
    assert target_of(deployment_id, ["x/a", "x/a@2025", "x/b"], named={"mine": "x/b"}) == target


@pytest.mark.parametrize(
    ("draw", "tried", "resting", "wanted"),
    [
        (0.0, (), (), {"x/a": 1, "x/b": 2, "x/c": 3, "other": 4}),
        (0.8, (), (), {"x/b": 1, "x/a": 2, "x/c": 3, "other": 4}),
        (0.0, ("x/a",), (), {"x/b": 1, "x/c": 2, "other": 3, "x/a": 4}),
        (0.99, ("x/a", "x/b"), (), {"x/c": 1, "other": 2, "x/a": 3, "x/b": 3}),
        (0.0, (), ("x/a",), {"x/b": 1, "x/c": 2, "other": 3, "x/a": 4}),
        (0.0, ("x/b",), ("x/a",), {"x/c": 1, "other": 2, "x/a": 3, "x/b": 4}),
        (0.0, ("x/a", "x/b", "x/c", "other"), (), {"x/a": 1, "x/b": 1, "x/c": 1, "other": 1}),
    ],
)
def test_deployment_orders(draw: float, tried: Sequence[str], resting: Sequence[str], wanted: dict[str, int]) -> None:
    """The drawn member, the others by rank, other deployments, resting ones, and last those tried by this request."""
    found = deployment_orders(
        entries(a=0.75, b=0.25, c=0.0),
        ["other", "x/c", "x/b", "x/a"],
        named={},
        tried=tried,
        resting=resting,
        draw=draw,
    )
    assert found == wanted


def test_deployments_of_one_target() -> None:
    """They share an order; if one of them has failed, the other keeps its place."""
    ids = ["x/a@1", "x/a@2", "x/b"]
    members = entries(a=1.0, b=0.0)
    assert deployment_orders(members, ids, named={}, draw=0.5) == {"x/a@1": 1, "x/a@2": 1, "x/b": 2}
    tried = deployment_orders(members, ids, named={}, tried=["x/a@1"], draw=0.5)
    assert tried == {"x/a@2": 1, "x/b": 2, "x/a@1": 3}


def test_no_member() -> None:
    """Without a member among the deployments there is no order."""
    assert deployment_orders(entries(a=1.0), ["d1", "d2"], named={}, draw=0.5) == {}
    assert deployment_orders(entries(a=1.0), [], named={}, draw=0.5) == {}
