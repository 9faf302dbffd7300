"""The conservation oracle: checks that every sample recorded by an agent is accounted for. Pure.

The agents' journals and copies of their spools have what was recorded; their counters are not used for it.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from chaos.journal import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    vantage: str
    recorded: AbstractSet[Key]  # everything that its spool ever committed
    stored: Counter[Key]  # rows in PostgreSQL
    cloned: AbstractSet[Key] = frozenset()  # what clones recorded, which may be stored
    at_risk: AbstractSet[Key] = frozenset()  # what a damaged spool or a full disk may have lost
    irrecoverable: AbstractSet[Key] = frozenset()  # removed by a restore, without a copy in a sound spool
    left: AbstractSet[Key] = frozenset()  # still in the spool, waiting or in quarantine
    counted: int = 0  # what the agent itself reports as dropped
    unbalanced: int = 0  # what is missing in the agent's own account


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    recorded: int = 0
    stored: int = 0
    lost: int = 0  # neither stored nor spooled, and for none of the reasons below
    duplicated: int = 0  # rows beyond the first of a sample
    dropped: int = 0  # lost to damage, and counted by the agent
    rolled_back: int = 0  # removed by a restore of the database, after damage to the agent's copies
    spooled: int = 0
    invented: int = 0  # stored, but never recorded by an agent
    unbalanced: int = 0  # missing in the agents' own accounts

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})

    @property
    def conserved(self) -> bool:
        return self.stored > 0 and not (self.lost or self.duplicated or self.invented or self.unbalanced)


def judge(evidence: Evidence) -> Verdict:
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
    return sum(map(judge, everything), Verdict())
