"""The resources of a client region, and the state of one stream of Envoy's: what was sent, acknowledged, and is due.
Pure.

Resources are functions of the route tables. Their version is a digest of the content: all collectors give equal
resources the same version, so an Envoy that changes to another collector, or reconnects, receives only what changed. A
cluster stays for a minute after its last use, for Envoys that have the earlier routes. A region without a route has no
snapshot, because an empty configuration would replace a good one.

1. A response has a nonce. The request with this nonce acknowledges the response or, with an error, rejects it. Requests
   with an earlier nonce are ignored by the state of the world; delta requests may come at any time.
2. A version is sent once. After a rejection, Envoy keeps what it has, and only another version is sent.
3. Clusters come before the routes that refer to them: while clusters of this stream are not acknowledged, or were
   rejected, no routes are sent.
4. A type without resources is not sent: it would delete what Envoy has.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_common import envoy
from isochrone_wire.model import MINUTE_US
from isochrone_wire.routes import RegionTables, RouteTable

CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
TYPES = (CLUSTERS, ROUTES)
"""The served types, in the order in which a change has to be applied."""

LINGER_US = MINUTE_US


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as JSON with its `@type`; `version` is the digest of the content."""

    name: str
    version: str
    document: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of some tables, by name."""

    clusters: Mapping[str, Resource]
    routes: Mapping[str, Resource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The resources for an Envoy. `unused_since` has the clusters that no route needs any more, with the instant."""

    clusters: Mapping[str, Resource]
    routes: Mapping[str, Resource]
    unused_since: Mapping[str, int] = field(default_factory=dict)

    def select(self, type_url: str, names: Collection[str] | None) -> dict[str, Resource]:
        """Return the resources of a type by name; all of them if `names` is `None`."""
        found = {CLUSTERS: self.clusters, ROUTES: self.routes}.get(type_url, {})
        return {name: one for name, one in found.items() if names is None or name in names}

    def next_change_at(self) -> int | None:
        """Return the instant at which an unused cluster has stayed long enough; `None` without one."""
        return min((since_at + LINGER_US for since_at in self.unused_since.values()), default=None)


def resources_of(client_region: str, tables: Sequence[RouteTable]) -> Resources:
    """Return the resources of the tables in use. Raises `UnknownName` if no route has a member."""
    if not any(table.entries for table in tables):
        raise UnknownName(f"no route has a member from {client_region!r} yet; retry in a moment")
    newest = max(table.generation for table in tables)
    region = RegionTables(client_region=client_region, generation=newest, etag="", answered_at=0, tables=tuple(tables))
    return Resources(_by_name(envoy.clusters(region)), _by_name([envoy.route_configuration(region)]))


def snapshot(resources: Resources, before: Snapshot | None, *, now_at: int) -> Snapshot:
    """Return the snapshot that follows `before`."""
    had = before.clusters if before else {}
    since = before.unused_since if before else {}
    unused = {name: since.get(name, now_at) for name in had if name not in resources.clusters}
    lingering = {name: at for name, at in unused.items() if now_at - at < LINGER_US}
    return Snapshot(
        clusters={**resources.clusters, **{name: had[name] for name in lingering}},
        routes=resources.routes,
        unused_since=lingering,
    )


def version_of(resources: Mapping[str, Resource]) -> str:
    """Return the version of several resources, whatever their order."""
    return _digest(sorted((one.name, one.version) for one in resources.values()))


def _by_name(documents: Sequence[Mapping[str, Any]]) -> dict[str, Resource]:
    return {one["name"]: Resource(one["name"], _digest(one), one) for one in documents}


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


MAX_NAMES = 10_000
"""Maximum number of names of a subscription. A delta subscription grows with every request."""
MAX_NAMES_CHARS = 256 << 10
"""Maximum number of their characters together."""

_ALL = "*"
Changes = tuple[tuple[Resource, ...], tuple[str, ...]]
"""Resources that changed, and the names of those that are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of either form; deltas have `removed_names`, and the `versions` that a returning client has."""

    type_url: str
    client_region: str = ""
    node_id: str = ""
    nonce: str = ""
    version: str = ""
    names: tuple[str, ...] = ()
    removed_names: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Resources of one type: all of them in the state of the world, those that changed in a delta."""

    type_url: str
    nonce: str
    version: str
    resources: tuple[Resource, ...]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A version that Envoy does not accept, and its reason."""

    type_url: str
    version: str
    reason: str


@dataclass(slots=True, kw_only=True)
class _Subscription:
    """A subscription to one type, to all if `names` is `None`; `sent` are the versions of the newest response."""

    names: set[str] | None
    version: str = ""
    sent: dict[str, str] = field(default_factory=dict)
    nonce: str = ""
    is_accepted: bool = True

    def answered(self, request: Request) -> Rejection | None:
        """Note the answer to the newest response."""
        self.is_accepted = request.error is None
        if request.error is None:
            return None
        return Rejection(type_url=request.type_url, version=self.version, reason=request.error)


class StreamState(ABC):
    """The state of a stream, of one of the two forms."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, _Subscription] = {}
        self._responses = 0

    def receive(self, request: Request) -> Rejection | None:
        """Note a request; return what it rejects. Raises `BadRequest`."""
        known = self._subscriptions.get(request.type_url)
        if known is not None:
            return self._received_again(known, request)
        if request.type_url in TYPES:
            # The first one of a type is for all resources if it has no names.
            names = _names(request) if request.names else None
            self._subscriptions[request.type_url] = _Subscription(
                names=names, version=request.version, sent=dict(request.versions)
            )
        return None

    def due(self, snapshot: Snapshot) -> Iterator[Response]:
        """Yield the responses to send now, in order, and note them as sent."""
        clusters = self._subscriptions.get(CLUSTERS)
        for type_url in TYPES:
            subscription = self._subscriptions.get(type_url)
            is_allowed = type_url == CLUSTERS or clusters is None or clusters.is_accepted
            resources = snapshot.select(type_url, subscription.names) if subscription and is_allowed else {}
            if subscription is None or not resources:
                continue
            changed, removed = self._changes(subscription, resources)
            if changed or removed:
                self._responses += 1
                subscription.nonce, subscription.version = str(self._responses), version_of(resources)
                subscription.sent = {name: one.version for name, one in resources.items()}
                subscription.is_accepted = False
                yield Response(
                    type_url=type_url,
                    nonce=subscription.nonce,
                    version=subscription.version,
                    resources=changed,
                    removed=removed,
                )

    @abstractmethod
    def _received_again(self, known: _Subscription, request: Request) -> Rejection | None: ...

    @abstractmethod
    def _changes(self, known: _Subscription, resources: Mapping[str, Resource]) -> Changes: ...


def _names(request: Request) -> set[str] | None:
    return None if _ALL in request.names else _bounded(set(request.names))


def _bounded(names: set[str]) -> set[str]:
    if len(names) > MAX_NAMES or sum(map(len, names)) > MAX_NAMES_CHARS:
        raise BadRequest(f"the stream subscribes to more than {MAX_NAMES} names or {MAX_NAMES_CHARS} characters")
    return names


class StateOfTheWorld(StreamState):
    """Each response has all resources that are subscribed to. Without names, all are."""

    def _received_again(self, known: _Subscription, request: Request) -> Rejection | None:
        if request.nonce != known.nonce:
            return None
        names = known.names if known.names is None and not request.names else _names(request)
        if known.names != names:
            known.names, known.version = names, ""
        return known.answered(request) if known.nonce else None

    def _changes(self, known: _Subscription, resources: Mapping[str, Resource]) -> Changes:
        return (tuple(resources.values()) if version_of(resources) != known.version else ()), ()


class Delta(StreamState):
    """Each response has the resources that changed, and the names of those that are gone."""

    def _received_again(self, known: _Subscription, request: Request) -> Rejection | None:
        # A name that is subscribed to again is sent again.
        for name in (*request.names, *request.removed_names):
            known.sent.pop(name, None)
        if _ALL in request.names:
            known.names = None
        elif known.names is not None:
            known.names = _bounded((known.names | set(request.names)) - set(request.removed_names))
        return known.answered(request) if request.nonce and request.nonce == known.nonce else None

    def _changes(self, known: _Subscription, resources: Mapping[str, Resource]) -> Changes:
        changed = tuple(one for name, one in resources.items() if known.sent.get(name) != one.version)
        return changed, tuple(name for name in known.sent if name not in resources)
