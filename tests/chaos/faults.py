"""The table of faults, and which of them strike when: a script that a seed decides alone. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """What goes wrong."""

    AGENT_KILLED = "agent-killed"
    COLLECTOR_KILLED = "collector-killed"
    COLLECTOR_FROZEN = "collector-frozen"
    POSTGRES_KILLED = "postgres-killed"
    BACKEND_KILLED = "backend-killed"
    REPLY_CUT = "reply-cut"
    PARTITION = "partition"
    DISK_FULL = "disk-full"
    SPOOL_DAMAGED = "spool-damaged"
    CLOCK_STEPPED = "clock-stepped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """How often a kind comes relative to the others, whether it strikes one agent or all of them, and what it is."""

    weight: int
    one_agent: bool
    sentence: str


NATURES: Mapping[Kind, Nature] = {
    Kind.AGENT_KILLED: Nature(weight=36, one_agent=True, sentence="SIGKILL of an agent, which starts again"),
    Kind.COLLECTOR_KILLED: Nature(weight=9, one_agent=False, sentence="SIGKILL of the collector, which starts again"),
    Kind.COLLECTOR_FROZEN: Nature(weight=4, one_agent=False, sentence="the collector stands still for 0.5 to 2 s"),
    Kind.POSTGRES_KILLED: Nature(weight=5, one_agent=False, sentence="SIGKILL of the postmaster, which starts again"),
    Kind.BACKEND_KILLED: Nature(weight=6, one_agent=False, sentence="SIGKILL of a backend: PostgreSQL restarts itself"),
    Kind.REPLY_CUT: Nature(weight=20, one_agent=True, sentence="the connection cut between a push and its reply"),
    Kind.PARTITION: Nature(weight=6, one_agent=True, sentence="no connection to the collector for 1 to 3 s"),
    Kind.DISK_FULL: Nature(weight=4, one_agent=True, sentence="no space left beside the spool for 1 to 3 s"),
    Kind.SPOOL_DAMAGED: Nature(weight=4, one_agent=True, sentence="SIGKILL of an agent, damage to its backlog"),
    Kind.CLOCK_STEPPED: Nature(weight=6, one_agent=True, sentence="an agent's wall clock set an hour off, or right"),
}  # fmt: skip  # a table is read by its columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: `after_s` seconds after the one before it, to the agent with this number. `dice` seeds its details."""

    number: int
    kind: Kind
    after_s: float
    agent: int
    dice: int


def script(*, seed: int, faults: int, agents: int, per_second: float, kinds: Collection[Kind]) -> list[Fault]:
    """So many faults, the same for the same arguments, at `per_second` on average."""
    chance = Random(seed)
    chosen = [kind for kind in Kind if kind in kinds]
    weights = [NATURES[kind].weight for kind in chosen]
    return [
        Fault(
            number=number,
            kind=chance.choices(chosen, weights)[0],
            after_s=chance.uniform(0.4, 1.6) / per_second,
            agent=chance.randrange(agents),
            dice=chance.getrandbits(32),
        )
        for number in range(1, faults + 1)
    ]
