"""The retry policy of pushes: one table from gRPC status to action, and the backoff."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from isochrone_common.channel import UNKNOWN_TARGETS_KEY
from isochrone_wire.model import SECOND_US

Metadata = Iterable[tuple[str, str | bytes]]

FIRST_WAIT_US = SECOND_US
# Seldom enough for a fleet: a healthy agent pushes more often. A longer wait would outlast most failures.
MAX_WAIT_US = 10 * SECOND_US
# The agent waits no longer than this, even if the collector asks for it.
MAX_DELAY_US = 600 * SECOND_US

_TOO_LARGE = "larger than max"
_PUSHBACK = "grpc-retry-pushback-ms"


class RetryAction(Enum):
    """The action of the agent after a push.

    STORED: continue. RETRY: push the same batch again after a growing wait. SLOW_DOWN: push it again after the wait
    that the collector asks for. SPLIT: push it in two halves, until the refused sample is alone and goes into
    quarantine. PARK: keep the samples of unknown targets until the collector has another plan. RENUMBER: seal its
    samples under a new epoch, and push them after a growing wait. STOP: push only heartbeats until one is accepted,
    log the reason, and continue to measure.
    """

    STORED = "stored"
    RETRY = "retry"
    SLOW_DOWN = "slow_down"
    SPLIT = "split"
    PARK = "park"
    RENUMBER = "renumber"
    STOP = "stop"


# By name of the gRPC status. Other statuses are retried, because a late sample is better than a lost one.
RETRY_ACTIONS: dict[str, RetryAction] = {
    "OK": RetryAction.STORED,
    "RESOURCE_EXHAUSTED": RetryAction.SLOW_DOWN,
    "INVALID_ARGUMENT": RetryAction.SPLIT,
    "OUT_OF_RANGE": RetryAction.SPLIT,
    "NOT_FOUND": RetryAction.PARK,
    "ALREADY_EXISTS": RetryAction.RENUMBER,
    "UNAUTHENTICATED": RetryAction.STOP,
    "PERMISSION_DENIED": RetryAction.STOP,
    "UNIMPLEMENTED": RetryAction.STOP,
    "FAILED_PRECONDITION": RetryAction.STOP,
}


def action_for(status: str, details: str = "") -> RetryAction:
    """Return the action. A message that is too large has the status of a busy collector; only its details differ."""
    if status == "RESOURCE_EXHAUSTED" and _TOO_LARGE in details:
        return RetryAction.SPLIT
    return RETRY_ACTIONS.get(status, RetryAction.RETRY)


def unknown_targets(metadata: Metadata) -> frozenset[int]:
    """The ids of the targets that the collector does not know, from the trailing metadata of a refusal."""
    texts = (text for key, text in metadata if key == UNKNOWN_TARGETS_KEY and isinstance(text, str))
    return frozenset(int(one) for text in texts for one in text.split(",") if one.isdecimal())


def spread_delay_us(delay_us: int, chance: float) -> int:
    """Return up to twice the delay that was asked for, perhaps of the whole fleet; `chance` is uniform in [0, 1)."""
    return int(min(max(delay_us, 0), MAX_DELAY_US // 2) * (1 + chance))


@dataclass(slots=True)
class Backoff:
    """Waits with full jitter: uniform from 0 to a ceiling that doubles from 1 s to 10 s until a push succeeds."""

    ceiling_us: int = FIRST_WAIT_US

    def next_wait_us(self, metadata: Metadata, chance: float) -> int:
        """The wait after a failure in microseconds, or what a refusal states; `chance` is uniform in [0, 1)."""
        for key, text in metadata:
            if key == _PUSHBACK and isinstance(text, str) and text.isdecimal():
                return spread_delay_us(int(text) * 1000, chance)
        wait_us = int(self.ceiling_us * chance)
        self.ceiling_us = min(self.ceiling_us * 2, MAX_WAIT_US)
        return wait_us

    def reset(self) -> None:
        """Start again at 1 s, after a push that succeeded."""
        self.ceiling_us = FIRST_WAIT_US


def draw() -> float:
    """A uniform random number in [0, 1) for `Backoff.next_wait_us`."""
    return random.random()  # noqa: S311  # jitter, not a secret
