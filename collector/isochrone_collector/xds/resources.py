"""The resources of a client region, with versions: pure functions of its route tables.

1. A version is a digest of the content. All collectors give equal resources the same version, so an Envoy that changes
   to another collector, or reconnects, receives only what changed.
2. A cluster stays for a minute after its last use, for Envoys that have the earlier routes.
3. A region without a route has no snapshot, because an empty configuration would replace a good one.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from isochrone_collector.errors import UnknownName
from isochrone_common import envoy
from isochrone_wire.model import MINUTE_US
from isochrone_wire.routes import RegionTables, RouteTable

CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
TYPES = (CLUSTERS, ROUTES)
"""The served types, in the order in which a change has to be applied."""

LINGER_US = MINUTE_US
_DIGEST_BYTES = 8


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
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
