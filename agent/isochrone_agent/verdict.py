"""What to do after a push: one table from the collector's answer to the agent's reaction. Pure."""

import random
from dataclasses import dataclass
from enum import Enum

from isochrone_wire.model import SECOND_US

FIRST_WAIT_US = SECOND_US
MAX_WAIT_US = 60 * SECOND_US


class Reaction(Enum):
    """Carry on, try again later, set the batch aside and go on with the next, or stop and say why."""

    STORED = "stored"
    RETRY = "retry"
    SET_ASIDE = "set_aside"
    STOP = "stop"


# By name of the gRPC status. What is not listed is retried: a spool forgives waiting, not loss.
REACTIONS: dict[str, Reaction] = {
    "OK": Reaction.STORED,
    "UNAUTHENTICATED": Reaction.STOP,
    "PERMISSION_DENIED": Reaction.STOP,
    "UNIMPLEMENTED": Reaction.STOP,
    "FAILED_PRECONDITION": Reaction.STOP,
    "INVALID_ARGUMENT": Reaction.SET_ASIDE,
}


def react(status: str) -> Reaction:
    """The reaction to a push that ended with this gRPC status."""
    return REACTIONS.get(status, Reaction.RETRY)


@dataclass(slots=True)
class Backoff:
    """Waits with full jitter: uniform from 0 to a ceiling that doubles from 1 s to 60 s; a healthy push resets it."""

    ceiling_us: int = FIRST_WAIT_US

    def next_wait_us(self, chance: float) -> int:
        """The wait after another failure, in microseconds; `chance` is uniform in [0, 1)."""
        wait_us = int(self.ceiling_us * chance)
        self.ceiling_us = min(self.ceiling_us * 2, MAX_WAIT_US)
        return wait_us

    def reset(self) -> None:
        """A push went well."""
        self.ceiling_us = FIRST_WAIT_US


def draw() -> float:
    """A uniform number in [0, 1) for `Backoff.next_wait_us`."""
    return random.random()  # noqa: S311  # jitter, not a secret
