"""Pauses between requests of an open page, in seconds, by the rules of `refresher.js` and `api.js`. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

PLAN = "plan"
TOPICS = frozenset({"samples", PLAN})
"""The topics after which the matrix asks again."""

MIN_PAUSE_S = 1.0
PAUSE_SHARE = 20
MAX_AGE_S = 60


@dataclass(slots=True)
class Pacing:
    """The state of one request of a page. It is sent at once when the page is opened, and then after notices and
    pauses, if they have one of its `topics`.
    """

    topics: Collection[str] = TOPICS
    pause_s: float = MIN_PAUSE_S
    allowed_s: float = 0.0
    wanted_s: float | None = 0.0
    is_new: bool = True

    def hear(self, topics: Collection[str], refresh_s: float, now_s: float) -> None:
        """Note a notice, the first of which may follow missed ones."""
        self.pause_s = max(MIN_PAUSE_S, refresh_s)
        if self.is_new or not set(topics).isdisjoint(self.topics):
            self.wanted_s = now_s
        self.is_new = False

    def due_s(self) -> float | None:
        """Return when it is sent next; `None` if it waits for a notice."""
        return None if self.wanted_s is None else max(self.wanted_s, self.allowed_s)

    def end(self, began_s: float, now_s: float, as_of_s: float) -> None:
        """Note that the answer to a request of `began_s` has arrived; it is of `as_of_s`, because it may be shared with
        other pages. What became new after that is asked for again.
        """
        self.allowed_s = now_s + max(self.pause_s, PAUSE_SHARE * (now_s - began_s))
        if self.wanted_s is not None and as_of_s >= self.wanted_s:
            self.wanted_s = None
