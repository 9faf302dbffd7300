"""The kinds of faults, and the schedule of a run, which depends on the seed only. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """The kind of a fault."""

    AGENT_KILLED = "agent-killed"
    AGENT_CLONED = "agent-cloned"
    COLLECTOR_KILLED = "collector-killed"
    LEADER_KILLED = "leader-killed"
    COLLECTOR_FROZEN = "collector-frozen"
    ROLLING_RESTART = "rolling-restart"
    COLLECTOR_CLOCK_STEPPED = "collector-clock-stepped"
    POSTGRES_KILLED = "postgres-killed"
    BACKEND_KILLED = "backend-killed"
    POSTGRES_FROZEN = "postgres-frozen"
    DATABASE_BLACKHOLED = "database-blackholed"
    FAILOVER = "failover"
    DATABASE_RESTORED = "database-restored"
    READ_ONLY = "read-only"
    TOO_MANY_CONNECTIONS = "too-many-connections"
    DATABASE_DISK_FULL = "database-disk-full"
    REPLY_CUT = "reply-cut"
    PARTITION = "partition"
    DISK_FULL = "disk-full"
    SPOOL_DAMAGED = "spool-damaged"
    CLOCK_STEPPED = "clock-stepped"


NEEDS_DISK = frozenset({Kind.DISK_FULL, Kind.DATABASE_DISK_FULL})
"""The kinds that need a disk which can be filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultType:
    """The relative frequency of a kind, whether it affects one agent or all, and its description."""

    weight: int
    one_agent: bool
    sentence: str


FAULT_TYPES: Mapping[Kind, FaultType] = {
    Kind.AGENT_KILLED: FaultType(weight=36, one_agent=True, sentence="SIGKILL of an agent, then a restart"),
    Kind.AGENT_CLONED: FaultType(weight=2, one_agent=True, sentence="a copy of an agent runs beside it for 5 s"),
    Kind.COLLECTOR_KILLED: FaultType(weight=9, one_agent=False, sentence="SIGKILL of a collector, then a restart"),
    Kind.LEADER_KILLED: FaultType(weight=4, one_agent=False, sentence="SIGKILL of the collector that leads"),
    Kind.COLLECTOR_FROZEN: FaultType(weight=4, one_agent=False, sentence="a collector is stopped for 0.5 to 2 s"),
    Kind.ROLLING_RESTART: FaultType(weight=3, one_agent=False, sentence="SIGTERM of each collector in turn"),
    Kind.COLLECTOR_CLOCK_STEPPED: FaultType(weight=4, one_agent=False, sentence="a collector's clock set off by 60 s"),
    Kind.POSTGRES_KILLED: FaultType(weight=5, one_agent=False, sentence="SIGKILL of the postmaster, then a restart"),
    Kind.BACKEND_KILLED: FaultType(weight=6, one_agent=False, sentence="SIGKILL of a backend: PostgreSQL restarts"),
    Kind.POSTGRES_FROZEN: FaultType(weight=3, one_agent=False, sentence="all of PostgreSQL is stopped for 1 to 4 s"),
    Kind.DATABASE_BLACKHOLED: FaultType(weight=2, one_agent=False, sentence="no byte reaches PostgreSQL for 1 to 4 s"),
    Kind.FAILOVER: FaultType(weight=3, one_agent=False, sentence="the primary is killed or vanishes; promotion"),
    Kind.DATABASE_RESTORED: FaultType(weight=2, one_agent=False, sentence="set back to a backup of 2 to 5 s before"),
    Kind.READ_ONLY: FaultType(weight=3, one_agent=False, sentence="PostgreSQL accepts no writes for 1 to 3 s"),
    Kind.TOO_MANY_CONNECTIONS: FaultType(weight=3, one_agent=False, sentence="PostgreSQL has none left for 1 to 3 s"),
    Kind.DATABASE_DISK_FULL: FaultType(weight=3, one_agent=False, sentence="no space left for PostgreSQL for 1 to 3 s"),
    Kind.REPLY_CUT: FaultType(weight=20, one_agent=True, sentence="the connection cut between a push and its reply"),
    Kind.PARTITION: FaultType(weight=6, one_agent=True, sentence="no connection to the collector for 1 to 3 s"),
    Kind.DISK_FULL: FaultType(weight=4, one_agent=True, sentence="no space left for the spool for 1 to 3 s"),
    Kind.SPOOL_DAMAGED: FaultType(weight=4, one_agent=True, sentence="SIGKILL of an agent, damage to its backlog"),
    Kind.CLOCK_STEPPED: FaultType(weight=6, one_agent=True, sentence="an agent's wall clock set off by 1 h, or right"),
}  # fmt: skip  # columns are aligned


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: `after_s` seconds after the previous one, for the agent with this number. `seed` determines its
    details, and `seconds` its duration if that is not 0.
    """

    number: int
    kind: Kind
    after_s: float
    agent: int
    seed: int
    seconds: float = 0.0


def schedule(*, seed: int, faults: int, agents: int, per_second: float, kinds: Collection[Kind]) -> list[Fault]:
    """Return the given number of faults, `per_second` on average; equal arguments give equal faults."""
    rng = Random(seed)
    chosen = [kind for kind in Kind if kind in kinds]
    weights = [FAULT_TYPES[kind].weight for kind in chosen]
    return [
        Fault(
            number=number,
            kind=rng.choices(chosen, weights)[0],
            after_s=rng.uniform(0.4, 1.6) / per_second,
            agent=rng.randrange(agents),
            seed=rng.getrandbits(32),
        )
        for number in range(1, faults + 1)
    ]
