"""What is sent on a stream, and when, in both forms of the protocol."""

from typing import Any

import pytest

from isochrone_collector.errors import BadRequest
from isochrone_collector.xds.stream_state import (
    CLUSTERS,
    MAX_NAMES,
    MAX_NAMES_CHARS,
    ROUTES,
    Delta,
    Request,
    Resource,
    Response,
    Snapshot,
    StateOfTheWorld,
    StreamState,
    version_of,
)

LISTENERS = "type.googleapis.com/envoy.config.listener.v3.Listener"
FORMS = [StateOfTheWorld, Delta]
both = pytest.mark.parametrize("form", FORMS)


def snapshot(clusters: str, routes: str = "") -> Snapshot:
    named = dict(word.split(":") for word in clusters.split())
    return Snapshot(
        clusters={name: Resource(name, version, {}) for name, version in named.items()},
        routes={"isochrone": Resource("isochrone", routes, {})} if routes else {},
    )


def subscribed(form: type[StateOfTheWorld] | type[Delta], *types: str, **request: Any) -> StreamState:
    state = form()
    for type_url in types or (CLUSTERS, ROUTES):
        assert state.receive(Request(type_url=type_url, **request)) is None
    return state


def sent(state: StreamState, found: Snapshot) -> list[tuple[str, list[str]]]:
    return [(one.type_url, [resource.name for resource in one.resources]) for one in state.due(found)]


def one(state: StreamState, found: Snapshot) -> Response:
    (response,) = state.due(found)
    return response


def answer(state: StreamState, response: Response, error: str | None = None) -> Any:
    names = ("isochrone",) if response.type_url == ROUTES and isinstance(state, StateOfTheWorld) else ()
    return state.receive(Request(type_url=response.type_url, nonce=response.nonce, names=names, error=error))


@both
def test_clusters_come_before_routes(form: Any) -> None:
    """Routes are sent after the clusters are acknowledged."""
    state, found = subscribed(form), snapshot("a:1 b:1", "1")
    response = one(state, found)
    assert response.type_url == CLUSTERS
    assert sent(state, found) == []
    answer(state, response)
    assert sent(state, found) == [(ROUTES, ["isochrone"])]


@both
def test_routes_alone_wait_for_nothing(form: Any) -> None:
    """A stream without a subscription to clusters has its routes at once."""
    assert sent(subscribed(form, ROUTES), snapshot("a:1", "1")) == [(ROUTES, ["isochrone"])]


@both
def test_an_acknowledged_version_is_sent_once(form: Any) -> None:
    """The same resources are due again only after they changed."""
    state = subscribed(form, CLUSTERS)
    answer(state, one(state, snapshot("a:1")))
    assert sent(state, snapshot("a:1")) == []
    assert sent(state, snapshot("a:2")) == [(CLUSTERS, ["a"])]


@both
def test_a_rejected_version_is_reported_and_not_repeated(form: Any) -> None:
    """A rejection has the version and the reason; the next version is sent, and this one is not."""
    state = subscribed(form, CLUSTERS)
    response = one(state, snapshot("a:1"))
    rejection = answer(state, response, error="no such field")
    assert (rejection.type_url, rejection.reason) == (CLUSTERS, "no such field")
    assert rejection.version == response.version == version_of(snapshot("a:1").clusters)
    assert sent(state, snapshot("a:1")) == []
    assert sent(state, snapshot("a:2")) == [(CLUSTERS, ["a"])]


@both
def test_routes_do_not_follow_rejected_clusters(form: Any) -> None:
    """While the clusters are rejected, Envoy keeps the routes that it has."""
    state = subscribed(form)
    answer(state, one(state, snapshot("a:1", "1")), error="no")
    assert sent(state, snapshot("a:1", "2")) == []
    response = one(state, snapshot("a:2", "2"))
    answer(state, response)
    assert sent(state, snapshot("a:2", "2")) == [(ROUTES, ["isochrone"])]


@both
def test_an_earlier_nonce_acknowledges_nothing(form: Any) -> None:
    """Only the answer to the newest response counts."""
    state = subscribed(form)
    first = one(state, snapshot("a:1", "1"))
    second = one(state, snapshot("a:2", "1"))
    assert answer(state, first, error="late") is None
    assert sent(state, snapshot("a:2", "1")) == []
    answer(state, second)
    assert sent(state, snapshot("a:2", "1")) == [(ROUTES, ["isochrone"])]


@both
def test_nothing_is_not_sent(form: Any) -> None:
    """A type without resources is not sent: it would delete the good ones."""
    state = subscribed(form, CLUSTERS)
    answer(state, one(state, snapshot("a:1")))
    assert sent(state, snapshot("")) == []


@both
def test_an_unknown_type_has_no_answer(form: Any) -> None:
    """A subscription to a type that is not served is ignored."""
    assert sent(subscribed(form, LISTENERS), snapshot("a:1", "1")) == []


@both
def test_nonces_differ(form: Any) -> None:
    """Each response of a stream has another nonce."""
    state = subscribed(form, CLUSTERS)
    assert len({one(state, snapshot(f"a:{version}")).nonce for version in range(5)}) == 5


@both
def test_a_client_that_reconnects_receives_changes_only(form: Any) -> None:
    """The versions of the first request of a new stream count as sent."""
    had = snapshot("a:1 b:1").clusters
    versions = {name: one.version for name, one in had.items()}
    state = subscribed(form, CLUSTERS, version=version_of(had), versions=versions)
    assert sent(state, snapshot("a:1 b:1")) == []
    assert sent(state, snapshot("a:2 b:1"))[0][0] == CLUSTERS


def test_the_state_of_the_world_has_everything() -> None:
    """A changed resource comes with all others; a request with other names is answered at once."""
    state = subscribed(StateOfTheWorld, CLUSTERS)
    answer(state, one(state, snapshot("a:1 b:1")))
    assert sent(state, snapshot("a:2 b:1")) == [(CLUSTERS, ["a", "b"])]
    assert sent(state, snapshot("a:2")) == [(CLUSTERS, ["a"])]
    state, found = subscribed(StateOfTheWorld, CLUSTERS, names=("a",)), snapshot("a:1 b:1")
    response = one(state, found)
    assert [resource.name for resource in response.resources] == ["a"]
    state.receive(Request(type_url=CLUSTERS, nonce=response.nonce, names=("a", "b")))
    response = one(state, found)
    assert [resource.name for resource in response.resources] == ["a", "b"]
    state.receive(Request(type_url=CLUSTERS, nonce=response.nonce))
    assert sent(state, found) == []


def test_a_delta_has_what_changed() -> None:
    """A delta has the changed resources and the removed names; subscriptions change without a nonce."""
    state = subscribed(Delta, CLUSTERS)
    answer(state, one(state, snapshot("a:1 b:1 c:1")))
    response = one(state, snapshot("a:1 b:2 d:1"))
    assert [resource.name for resource in response.resources] == ["b", "d"]
    assert response.removed == ("c",)
    state, found = subscribed(Delta, CLUSTERS, names=("a",)), snapshot("a:1 b:1")
    assert sent(state, found) == [(CLUSTERS, ["a"])]
    state.receive(Request(type_url=CLUSTERS, names=("b",)))
    assert sent(state, found) == [(CLUSTERS, ["b"])]
    state.receive(Request(type_url=CLUSTERS, removed_names=("a",)))
    assert sent(state, snapshot("a:2 b:1")) == []
    state.receive(Request(type_url=CLUSTERS, names=("b",)))
    assert sent(state, found) == [(CLUSTERS, ["b"])]


def test_a_delta_subscription_to_all() -> None:
    """The name `*` is all resources; names add up over requests to a limit, also few long ones."""
    state = subscribed(Delta, CLUSTERS, names=("a",))
    sent(state, snapshot("a:1 b:1"))
    state.receive(Request(type_url=CLUSTERS, names=("*",)))
    assert sent(state, snapshot("a:1 b:1")) == [(CLUSTERS, ["b"])]
    state = subscribed(Delta, CLUSTERS, names=("a",))
    state.receive(Request(type_url=CLUSTERS, names=tuple(map(str, range(MAX_NAMES - 1)))))
    with pytest.raises(BadRequest, match="names"):
        state.receive(Request(type_url=CLUSTERS, names=("b",)))
    state = subscribed(Delta, CLUSTERS, names=("a" * (MAX_NAMES_CHARS // 2),))
    state.receive(Request(type_url=CLUSTERS, names=("b" * (MAX_NAMES_CHARS // 2),)))
    with pytest.raises(BadRequest, match="characters"):
        state.receive(Request(type_url=CLUSTERS, names=("c",)))


@both
def test_the_first_subscription_is_bounded(form: type[StateOfTheWorld | Delta]) -> None:
    """So are the names of a single request."""
    with pytest.raises(BadRequest, match="names"):
        form().receive(Request(type_url=CLUSTERS, names=tuple(map(str, range(MAX_NAMES + 1)))))
