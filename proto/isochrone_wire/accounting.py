"""The promise of delivery as arithmetic: every finished sample is somewhere.

    finished = stored + spooled + sum(dropped by reason)

An agent evaluates it over its spool (`stored` is what the collector acknowledged), a collector over its ledger and the
vitals of the newest push, a test over both. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from isochrone_wire.model import Vitals


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the samples of one spool are, in numbers of samples. `spooled` includes those in quarantine: they are on
    disk. A sample the collector rejected is dropped, under the name of the collector's reason.
    """

    finished: int
    stored: int
    spooled: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Samples that are nowhere: 0 when the promise holds, negative when something is counted twice."""
        return self.finished - self.stored - self.spooled - sum(self.dropped.values())

    @property
    def holds(self) -> bool:
        """Whether the promise holds."""
        return self.missing == 0


def account_of(vitals: Vitals) -> Account:
    """The account an agent gives of itself in its vitals."""
    return Account(
        finished=vitals.finished,
        stored=vitals.stored,
        spooled=vitals.spool_depth + vitals.quarantined,
        dropped=vitals.dropped,
    )
