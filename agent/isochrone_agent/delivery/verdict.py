"""What to do after a push: one table from the collector's answer to the agent's reaction. Pure."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from isochrone_wire.model import SECOND_US

FIRST_WAIT_US = SECOND_US
MAX_WAIT_US = 60 * SECOND_US
# A collector that asks for more is not obeyed further than this.
MAX_DELAY_US = 600 * SECOND_US

_TOO_LARGE = "larger than max"
_PUSHBACK = "grpc-retry-pushback-ms"


class Reaction(Enum):
    """Carry on · try the same batch again, later and later · try again after the time the collector says · send the
    batch in two halves, until the sample to blame is alone and goes into quarantine · stop pushing and say why, but go
    on measuring, and ask now and then whether that still holds.
    """

    STORED = "stored"
    RETRY = "retry"
    SLOW_DOWN = "slow_down"
    SPLIT = "split"
    STOP = "stop"


# By name of the gRPC status. What is not listed is retried: a spool forgives waiting, not loss.
REACTIONS: dict[str, Reaction] = {
    "OK": Reaction.STORED,
    "RESOURCE_EXHAUSTED": Reaction.SLOW_DOWN,
    "INVALID_ARGUMENT": Reaction.SPLIT,
    "OUT_OF_RANGE": Reaction.SPLIT,
    "UNAUTHENTICATED": Reaction.STOP,
    "PERMISSION_DENIED": Reaction.STOP,
    "UNIMPLEMENTED": Reaction.STOP,
    "FAILED_PRECONDITION": Reaction.STOP,
}


def react(status: str, details: str = "") -> Reaction:
    """The reaction to a push that ended with this gRPC status. A message that is too large has the status of a
    collector that is too busy, and only its details tell the two apart.
    """
    if status == "RESOURCE_EXHAUSTED" and _TOO_LARGE in details:
        return Reaction.SPLIT
    return REACTIONS.get(status, Reaction.RETRY)


def stated_delay_us(metadata: Iterable[tuple[str, str | bytes]]) -> int | None:
    """How long the collector asks to wait in the trailing metadata of a refusal, in microseconds."""
    for key, text in metadata:
        if key == _PUSHBACK and isinstance(text, str) and text.isdecimal():
            return bounded_delay_us(int(text) * 1000)
    return None


def bounded_delay_us(delay_us: int) -> int:
    """A delay the collector asked for, within reason."""
    return min(max(delay_us, 0), MAX_DELAY_US)


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
