"""The conservation oracle: checks that every sample recorded by an agent is accounted for. Pure.

Its knowledge of recorded samples comes from the agents' journals and from copies of their spools, never from their
counters.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from chaos.journal import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence on one vantage at the end of a run.

    `recorded`: everything its spool ever committed. `cloned`: what clones recorded, which may be stored. `at_risk`:
    samples that a damaged spool or a full disk may have lost. `left`: samples still in the spool, waiting or in
    quarantine. `stored`: rows in PostgreSQL. `irrecoverable`: samples that a restore of the database removed, and whose
    copy a damaged or full disk may have destroyed. `counted`: samples that the agent itself reports as dropped.
    `unbalanced`: samples missing in the agent's own account.
    """

    vantage: str
    recorded: AbstractSet[Key]
    stored: Counter[Key]
    cloned: AbstractSet[Key] = field(default_factory=frozenset)
    at_risk: AbstractSet[Key] = field(default_factory=frozenset)
    irrecoverable: AbstractSet[Key] = field(default_factory=frozenset)
    left: AbstractSet[Key] = field(default_factory=frozenset)
    counted: int = 0
    unbalanced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Numbers of samples. `dropped`: lost to damage and counted by the agent. `rolled_back`: removed by a
    restore of the database, after damage to the agent's copies. `lost`: lost otherwise. `duplicated`: rows beyond the
    first of a sample. `invented`: in PostgreSQL but never recorded by an agent. `unbalanced`: missing in the agents'
    own accounts.
    """

    recorded: int = 0
    stored: int = 0
    lost: int = 0
    duplicated: int = 0
    dropped: int = 0
    rolled_back: int = 0
    spooled: int = 0
    invented: int = 0
    unbalanced: int = 0

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})

    @property
    def conserved(self) -> bool:
        """True if samples were stored, and none was lost, duplicated or invented."""
        return self.stored > 0 and not (self.lost or self.duplicated or self.invented or self.unbalanced)


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict on one vantage."""
    stored = set(evidence.stored)
    gone = evidence.recorded - stored - evidence.left
    missing = gone - evidence.irrecoverable
    dropped = min(len(missing & evidence.at_risk), evidence.counted)
    return Verdict(
        recorded=len(evidence.recorded),
        stored=len(stored & evidence.recorded),
        spooled=len(evidence.left - stored),
        dropped=dropped,
        rolled_back=len(gone) - len(missing),
        lost=len(missing) - dropped,
        duplicated=evidence.stored.total() - len(stored),
        invented=len(stored - evidence.recorded - evidence.cloned),
        unbalanced=abs(evidence.unbalanced),
    )


def judge_all(everything: Iterable[Evidence]) -> Verdict:
    """Return the sum over all vantages."""
    return sum(map(judge, everything), Verdict())
