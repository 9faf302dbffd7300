"""The conservation oracle: whether every sample that any agent recorded is where it must be. Pure.

What was recorded it knows from the agents' journals and from copies of their spools, never from a counter of theirs.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from chaos.journal import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one vantage at the end.

    `recorded`: everything its spool ever committed. `exposed`: what could be lost to a damaged spool or a full disk.
    `left`: what lies in the spool now, waiting or in quarantine. `stored`: the rows in PostgreSQL. `counted`: how many
    samples the agent itself says that it has dropped. `unbalanced`: how many are missing in the agent's own account.
    """

    vantage: str
    recorded: AbstractSet[Key]
    stored: Counter[Key]
    exposed: AbstractSet[Key] = field(default_factory=frozenset)
    left: AbstractSet[Key] = field(default_factory=frozenset)
    counted: int = 0
    unbalanced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Numbers of samples. `dropped`: gone by damage, and the agent has counted them. `lost`: gone otherwise.
    `duplicated`: rows beyond the first of a sample. `invented`: in PostgreSQL though no agent has recorded them.
    `unbalanced`: missing in the agents' own accounts.
    """

    recorded: int = 0
    stored: int = 0
    spooled: int = 0
    dropped: int = 0
    lost: int = 0
    duplicated: int = 0
    invented: int = 0
    unbalanced: int = 0

    def __add__(self, other: "Finding") -> "Finding":
        return Finding(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})

    @property
    def conserved(self) -> bool:
        """Whether the promise was kept, and there was something to keep it for."""
        return self.stored > 0 and not (self.lost or self.duplicated or self.invented or self.unbalanced)


def judge(evidence: Evidence) -> Finding:
    """Where the samples of one vantage are."""
    stored = set(evidence.stored)
    missing = evidence.recorded - stored - evidence.left
    dropped = min(len(missing & evidence.exposed), evidence.counted)
    return Finding(
        recorded=len(evidence.recorded),
        stored=len(stored & evidence.recorded),
        spooled=len(evidence.left - stored),
        dropped=dropped,
        lost=len(missing) - dropped,
        duplicated=evidence.stored.total() - len(stored),
        invented=len(stored - evidence.recorded),
        unbalanced=abs(evidence.unbalanced),
    )


def judge_all(everything: Iterable[Evidence]) -> Finding:
    """The sum over all vantages."""
    return sum(map(judge, everything), Finding())
