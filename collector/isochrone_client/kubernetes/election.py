"""Election of a leader by a `Lease`, as Kubernetes' own components do it. Pure.

The holder renews its lease. A candidate takes it over when it has seen no renewal for the duration of the lease, by its
own monotonic clock: the clocks of two machines are never compared. The API server accepts only one of two writes that
start from the same version of the lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DURATION_SECONDS = 15.0
RENEW_SECONDS = 2.0
# A holder that could not renew stops early enough for every clock.
DEADLINE_SECONDS = 10.0

Spec = Mapping[str, Any]


@dataclass(slots=True)
class Election:
    """The candidature of `identity`. Instants are seconds of a monotonic clock, but for `renew_time`, which is text."""

    identity: str
    _seen: Spec | None = None
    _seen_at: float = 0.0
    _held_until: float = field(default=0.0)

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
