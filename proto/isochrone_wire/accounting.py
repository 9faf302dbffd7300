"""Delivery accounting: every finished sample is stored, spooled or dropped for a named reason.

    finished = stored + spooled + sum(dropped by reason)

An agent evaluates the equation over its spool (`stored` counts the samples that the collector acknowledged), the
collector over its ledger and the newest heartbeat, and tests over both. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from isochrone_wire.model import Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sample counts of one spool. `spooled` includes quarantined samples, which are still on disk. A sample that the
    collector rejected counts as dropped, under the collector's reason.
    """

    finished: int
    stored: int
    spooled: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Samples that are unaccounted for: 0 if the account holds, negative if samples are counted twice."""
        return self.finished - self.stored - self.spooled - sum(self.dropped.values())

    @property
    def holds(self) -> bool:
        """True if no sample is missing or counted twice."""
        return self.missing == 0


def account_of(heartbeat: Heartbeat) -> Account:
    """Return the account that a heartbeat reports."""
    return Account(
        finished=heartbeat.finished,
        stored=heartbeat.stored,
        spooled=heartbeat.spool_depth + heartbeat.quarantined,
        dropped=heartbeat.dropped,
    )
