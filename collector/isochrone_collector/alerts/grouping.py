"""Grouping: the notifications that are due for a receiver, out of its pending alerts. Pure; instants are microseconds.

The laws:

1. Alerts of one group wait for each other until the window of the receiver has passed since the oldest of them was due.
   Without a window each problem is a group of its own.
2. A notification has alerts of one group that do the same: begin, acknowledge, end. The rest of the group waits until
   it is delivered, so that the receiver gets everything about a problem in order. Groups do not wait for each other.
3. A group keeps its key while the receiver knows of an open problem in it; it is resolved when none is left.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.alerts.notification import Notification, State
from isochrone_collector.alerts.silences import Pending
from isochrone_collector.alerts.topic import Action, Topic, topic_of

MAX_TOGETHER = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProblem:
    """A problem of which the receiver has the beginning, under a key, and not the end. `message` is the newest alert
    that began it, `delivered_at` when the last alert on it was accepted; `is_pending` if it is being repeated.
    """

    message: AlertMessage
    key: str
    delivered_at: int = 0
    is_acknowledged: bool = False
    is_pending: bool = False

    @property
    def topic(self) -> Topic:
        """The topic of the alert that began it."""
        return topic_of(self.message)


def due(
    pending: Iterable[Pending], known: Collection[OpenProblem], *, window_us: int, now_at: int
) -> Iterator[Notification]:
    """Yield the notifications to send now; `pending` are oldest first."""
    groups: dict[str, list[Pending]] = {}
    for one in pending:
        groups.setdefault(_group(one.topic, window_us), []).append(one)
    for name, alerts in groups.items():
        if _due_at(alerts, window_us) <= now_at:
            yield _notification(alerts, name, known, window_us)


def _group(topic: Topic, window_us: int) -> str:
    return topic.group if window_us else topic.thread


def _due_at(alerts: list[Pending], window_us: int) -> int:
    """Return when the first of the alerts is due, which waits for further ones at its first attempt only."""
    first = alerts[0]
    waits = not first.attempts and first.topic.action is not Action.ACKNOWLEDGE
    return first.next_attempt_at + (window_us if waits else 0)


def _notification(alerts: list[Pending], name: str, known: Collection[OpenProblem], window_us: int) -> Notification:
    action = alerts[0].topic.action
    of_group = [one for one in known if _group(one.topic, window_us) == name]
    keys = {one.topic.thread: one.key for one in known}
    # What began under another key ends under it.
    default = of_group[0].key if of_group else alerts[0].topic.thread
    together = list(takewhile(lambda one: one.topic.action is action, alerts))[:MAX_TOGETHER]
    key = keys.get(together[0].topic.thread, default)
    together = [one for one in together if keys.get(one.topic.thread, default) == key]
    if not window_us:
        together = together[:1]
    left = _left(together, [one for one in known if one.key == key])
    still_open = len(left)
    state = State.TRIGGER
    if action is Action.END and not left:
        state = State.RESOLVE
    elif left and action is not Action.EVENT and all(left.values()):
        state = State.ACKNOWLEDGE
    return Notification(key=key, state=state, alerts=tuple(together), still_open=still_open)


def _left(alerts: Iterable[Pending], known: Iterable[OpenProblem]) -> dict[str, bool]:
    """Return the threads that are open after some alerts, and whether each is acknowledged."""
    left = {one.topic.thread: one.is_acknowledged for one in known}
    for one in alerts:
        if one.topic.action is Action.END:
            left.pop(one.topic.thread, None)
        elif one.topic.action is not Action.EVENT:
            left[one.topic.thread] = one.topic.action is Action.ACKNOWLEDGE
    return left
