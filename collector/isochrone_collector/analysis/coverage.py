"""Coverage: of the rounds that were planned, how many have a sample. What has none is the vantage's own absence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isochrone_wire.answers import Window
from isochrone_wire.model import MINUTE_US
from isochrone_wire.rounds import rounds_between

MAX_SILENCE_US = 5 * MINUTE_US
"""How long a vantage that is there may be silent; the heartbeats that agents promise are closer together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpan:
    """A plan in force over [from_at, until_at), open-ended for the newest: target id → interval in microseconds."""

    from_at: int
    until_at: int | None
    every_us: Mapping[int, int]


def planned_rounds(target_id: int, spans: Sequence[PlanSpan], window: Window) -> int:
    """How many rounds the plans asked of one vantage for one target within the window."""
    return sum(_rounds(target_id, span, window) for span in spans if target_id in span.every_us)


def active_window(
    window: Window, *, first_seen_at: int, last_seen_at: int, oldest_at: int | None, now_at: int
) -> Window:
    """The part of a window in which a vantage was there; it ends before it begins when the vantage was not.

    It was there from the first push, or from the oldest round of that push (`oldest_at`, of those within the window),
    which lies before it; and nobody is asked for rounds of the future. One that was last heard of before the window
    began and left nothing in it is gone: a machine that was replaced owes no rounds. One that fell silent within the
    window owes those until its end, for that absence is what coverage is to show.
    """
    gone_at = last_seen_at + MAX_SILENCE_US
    if oldest_at is None and gone_at < window.from_at:
        return Window(from_at=window.from_at, until_at=gone_at)
    there_from_at = first_seen_at if oldest_at is None else min(first_seen_at, oldest_at)
    return Window(from_at=max(window.from_at, there_from_at), until_at=min(window.until_at, now_at))


def _rounds(target_id: int, span: PlanSpan, window: Window) -> int:
    until_at = window.until_at if span.until_at is None else min(window.until_at, span.until_at)
    from_at = max(window.from_at, span.from_at)
    return rounds_between(from_at, until_at, target_id=target_id, every_us=span.every_us[target_id])
