"""The loop that makes route objects follow the tables, on the replica that leads, and the election of that one.

The tables arrive through `receive`. A change of a table or an object wakes the loop, which reads all objects and
applies what differs, so that an event that is lost costs a minute at most.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from isochrone_client.errors import ClusterError
from isochrone_client.kubernetes.cluster import Cluster, ConflictError
from isochrone_client.kubernetes.route_objects import GENERATION_ANNOTATION, KINDS, Kind, change_of
from isochrone_wire.routes import RouteTable

DURATION_SECONDS = 15.0
RENEW_SECONDS = 2.0
# A holder that could not renew stops early enough for every clock.
DEADLINE_SECONDS = 10.0
_READ_AGAIN_SECONDS = 60.0

Spec = Mapping[str, Any]


@dataclass(slots=True)
class Election:
    """The candidature of `identity` for a `Lease`, as Kubernetes' own components do it.

    The holder renews its lease. A candidate takes it over when it has seen no renewal for the duration of the lease, by
    its own monotonic clock: the clocks of two machines are never compared. The API server accepts only one of two
    writes that start from the same version of the lease. Instants are seconds of that clock; `renew_time` is text.
    """

    identity: str
    _seen: Spec | None = None
    _seen_at: float = 0.0
    _held_until: float = 0.0

    def leads(self, now: float) -> bool:
        """True while the lease is held for certain."""
        return now < self._held_until

    def wanted(self, spec: Spec | None, *, now: float, renew_time: str) -> dict[str, Any] | None:
        """The content of the lease to write, given its present one (`None`: there is no lease), or `None` to wait."""
        if spec is None:
            return self._content(0, acquired=renew_time, renewed=renew_time)
        if spec != self._seen:
            self._seen, self._seen_at = spec, now
        transitions = int(spec.get("leaseTransitions") or 0)
        if spec.get("holderIdentity") == self.identity:
            return self._content(transitions, acquired=spec.get("acquireTime") or renew_time, renewed=renew_time)
        duration = float(spec.get("leaseDurationSeconds") or DURATION_SECONDS)
        if spec.get("holderIdentity") and now < self._seen_at + duration:
            return None
        return self._content(transitions + 1, acquired=renew_time, renewed=renew_time)

    def written(self, spec: Spec, *, at: float) -> None:
        """Note that the API server has accepted the lease, which was requested at that instant."""
        self._seen, self._seen_at = spec, at
        self._held_until = at + DEADLINE_SECONDS if spec.get("holderIdentity") == self.identity else 0.0

    def lost(self) -> None:
        """Note that another candidate holds the lease."""
        self._held_until = 0.0

    def _content(self, transitions: int, *, acquired: str, renewed: str) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(DURATION_SECONDS),
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": transitions,
        }


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Makes the objects of a cluster follow the tables while it holds the lease of that name."""

    cluster: Cluster
    lease: str
    election: Election
    report: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _tables: Mapping[str, RouteTable] = field(default_factory=dict)
    _woken: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _is_due: bool = False
    _is_over: threading.Event = field(default_factory=threading.Event)
    _reported: frozenset[str] = frozenset()
    _read_at: float = 0.0
    _renewed_at: float = -RENEW_SECONDS
    _led: bool = False

    def receive(self, tables: Iterable[RouteTable]) -> None:
        """Take the tables to follow from now on."""
        self._tables = {table.route: table for table in tables}
        self._wake()

    def start(self) -> None:
        """Start the loop and a watch per kind, as threads."""
        for kind in KINDS:
            threading.Thread(target=self._watch, args=(kind,), daemon=True).start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop, and give the lease up, so that another replica leads at once."""
        self._is_over.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(5.0)
        if self.election.leads(self.clock()):
            with suppress(ClusterError):
                before = self.cluster.read_lease(self.lease)
                if before is not None and before["spec"].get("holderIdentity") == self.election.identity:
                    self.cluster.write_lease(self.lease, before, before["spec"] | {"holderIdentity": ""})

    def step(self) -> None:
        """Renew or request the lease; with it, make the objects follow if that is due."""
        self._take_lease()
        leads = self.election.leads(self.clock())
        if leads != self._led:
            self._led = leads
            self.report("leading" if leads else "another replica leads")
            self._is_due = True
        if leads and self._tables and (self._is_due or self.clock() >= self._read_at + _READ_AGAIN_SECONDS):
            self._is_due = False
            self._read_at = self.clock()
            self._reconcile()

    def _run(self) -> None:
        failure = ""
        while not self._is_over.is_set():
            try:
                self.step()
                failure = ""
            except ClusterError as error:
                if str(error) != failure:
                    self.report(str(error))
                failure = str(error)
                self._is_due = True
                self._is_over.wait(RENEW_SECONDS)
            self._woken.wait(RENEW_SECONDS)
            self._woken.clear()

    def _wake(self) -> None:
        self._is_due = True
        self._woken.set()

    def _take_lease(self) -> None:
        if self.clock() < self._renewed_at + RENEW_SECONDS:
            return
        self._renewed_at = self.clock()
        before = self.cluster.read_lease(self.lease)
        now, renew_time = self.clock(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = self.election.wanted(before["spec"] if before else None, now=now, renew_time=renew_time)
        with suppress(ConflictError):
            if spec is not None:
                self.cluster.write_lease(self.lease, before, spec)
                self.election.written(spec, at=now)
                return
        self.election.lost()

    def _reconcile(self) -> None:
        changes = [
            (kind, live, change_of(kind, live, self._tables)) for kind in KINDS for live in self.cluster.list(kind)
        ]
        problems = frozenset(problem for _, _, change in changes for problem in change.problems)
        for problem in sorted(problems - self._reported):
            self.report(problem)
        self._reported = problems
        for kind, live, change in changes:
            if change.patch is None or not self.election.leads(self.clock()):
                continue
            try:
                self.cluster.apply(kind, change.patch)
            except ConflictError:
                self._wake()  # it has changed since it was read
                continue
            generation = change.patch["metadata"]["annotations"][GENERATION_ANNOTATION]
            self.report(f"{kind.kind} {live['metadata']['name']}: weights of generation {generation}")

    def _watch(self, kind: Kind) -> None:
        while not self._is_over.is_set():
            try:
                for _ in self.cluster.watch(kind):
                    self._wake()
            except ClusterError:
                # The loop reports a server that is away; a kind that is not installed is not reported.
                self._is_over.wait(5.0)
