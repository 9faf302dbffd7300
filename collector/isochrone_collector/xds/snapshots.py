"""The snapshot of each Envoy: the resources of the tables that it follows, by the rules of all consumers.

An Envoy is identified by its region and a digest of its node's id. The digest is also its share of the time over which
consumers change to a table with other weights, so that a fleet of Envoys does not change at once.

Resources that an Envoy rejected are counted, and logged with the reason once per version, at a bounded rate.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from isochrone_collector.auth.limits import RefusalLog
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing.publisher import Place, Publisher
from isochrone_collector.recent_values import RecentValues
from isochrone_collector.xds.stream_state import (
    CLUSTERS,
    ROUTES,
    Rejection,
    Resources,
    Snapshot,
    resources_of,
    snapshot,
)
from isochrone_common.route_consumer import FollowedTables, endpoint
from isochrone_wire.model import Plan
from isochrone_wire.routes import RouteEntry, RouteTable
from isochrone_wire.text import shortened
from isochrone_wire.workloads import MAX_NAME_CHARS

MAX_ENVOYS = 4_096
"""The number of Envoys that are remembered; another one applies its first tables at once."""

_SHARE_BITS = 64


@dataclass(slots=True)
class _Envoy:
    followed: FollowedTables
    planned: Mapping[str, RouteEntry] = field(default_factory=dict)
    tables: tuple[RouteTable, ...] = ()
    snapshot: Snapshot | None = None


class Snapshots:
    """The newest snapshots; `clock` returns microseconds since the epoch."""

    def __init__(self, *, publisher: Publisher, plans: Plans, clock: Callable[[], int]) -> None:
        self._publisher = publisher
        self._plans = plans
        self._clock = clock
        self._envoys = RecentValues[_Envoy](MAX_ENVOYS)
        self._resources = RecentValues[Resources](256)
        self._plan: Plan | None = None
        self._planned: dict[str, RouteEntry] = {}
        self._in_force: dict[str, tuple[Place, tuple[RouteTable, ...]]] = {}

    def of(self, client_region: str, node_id: str) -> Snapshot:
        """Return the snapshot of an Envoy as of now. Raises `UnknownName`, which lists the known regions."""
        tables, now_at = self._tables(client_region), self._clock()
        envoy = self._envoy(client_region, node_id)
        followed = envoy.followed
        if envoy.planned is not self._planned:
            envoy.planned, followed.endpoints = self._planned, self._planned | followed.endpoints
        for table in tables:
            followed.receive(table)
        followed.keep_only(table.route for table in tables)
        in_use = followed.at(now_at)
        next_at = envoy.snapshot.next_change_at() if envoy.snapshot else None
        if envoy.snapshot is None or envoy.tables != in_use or (next_at is not None and now_at >= next_at):
            # Made once for all Envoys.
            key = client_region, self._plans.version, *((table.etag, table.state) for table in in_use)
            resources = self._resources.get(key, lambda: resources_of(client_region, in_use))
            envoy.snapshot = snapshot(resources, envoy.snapshot, now_at=now_at)
            envoy.tables = in_use
        return envoy.snapshot

    def next_change_us(self, client_region: str, node_id: str) -> int | None:
        """Return the time until the snapshot changes without a new table, in microseconds; `None` if it does not."""
        envoy, now_at = self._envoy(client_region, node_id), self._clock()
        instants = (envoy.followed.next_change_at(now_at), envoy.snapshot.next_change_at() if envoy.snapshot else None)
        return min((max(0, at - now_at) for at in instants if at is not None), default=None)

    def _envoy(self, client_region: str, node_id: str) -> _Envoy:
        digest = int.from_bytes(blake2b(node_id.encode(), digest_size=_SHARE_BITS // 8).digest())
        share = digest / 2**_SHARE_BITS
        return self._envoys.get((client_region, digest), lambda: _Envoy(FollowedTables(share=share)))

    def _tables(self, client_region: str) -> tuple[RouteTable, ...]:
        """The tables in force in a region, looked up once per place and plan; every stream asks for them."""
        place, plan = self._publisher.place, self._plans.current
        if plan is not self._plan:
            self._plan, self._in_force = plan, {}
            self._planned = {target.name: endpoint(target) for target in plan.targets} if plan else {}
        known = self._in_force.get(client_region)
        if known is None or known[0] != place:
            known = self._in_force[client_region] = place, self._publisher.tables(client_region).tables
        return known[1]


_KIND_OF = {CLUSTERS: "clusters", ROUTES: "routes"}


class Rejections:
    """The rejections of this process, over gRPC and HTTP."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """Rejected responses by client region and kind of resource."""
        self._logged: dict[tuple[str, str], str] = {}
        self._log = RefusalLog("envoy.rejected")

    def note(self, client_region: str, rejection: Rejection | None) -> None:
        """Count a rejection, if there is one, of a region that has tables."""
        if rejection is None:
            return
        key = client_region, _KIND_OF[rejection.type_url]
        self.counts[key] += 1
        # Over HTTP an Envoy states the version.
        version = shortened(rejection.version, MAX_NAME_CHARS)
        if self._logged.get(key) != version:
            self._logged[key] = version
            self._log.write(
                client_region=client_region, resources=key[1], version=version, reason=shortened(rejection.reason)
            )
