"""Coverage: the share of planned rounds that have a sample. Rounds without a sample count as missed by the vantage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from isochrone_wire.answers import Window
from isochrone_wire.model import MINUTE_US
from isochrone_wire.rounds import rounds_between

MAX_SILENCE_US = 5 * MINUTE_US
"""How long an active vantage may be silent, in microseconds; agents send heartbeats more often than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpan:
    """A plan in force over [from_at, until_at), open-ended for the newest: target id → interval in microseconds, and
    the id that sets the phase where that is another target's (`isochrone_wire.rounds`).
    """

    from_at: int
    until_at: int | None
    every_us: Mapping[int, int]
    phase_ids: Mapping[int, int] = field(default_factory=dict)


def planned_rounds(target_id: int, spans: Sequence[PlanSpan], window: Window) -> int:
    """Count the rounds that the plans ask of one vantage for one target within the window."""
    return sum(_rounds(target_id, span, window) for span in spans if target_id in span.every_us)


def active_window(
    window: Window, *, first_seen_at: int, last_seen_at: int, oldest_at: int | None, now_at: int
) -> Window:
    """Return the part of a window in which a vantage was active; it ends before it begins if there is none.

    A vantage is active from its first push, or from the oldest round of that push (`oldest_at`, within the window),
    until `now_at`. A vantage last seen before the window that has no round in it was removed, so no rounds are expected
    of it. A vantage that fell silent within the window stays active until the window's end, so that coverage shows its
    absence.
    """
    gone_at = last_seen_at + MAX_SILENCE_US
    if oldest_at is None and gone_at < window.from_at:
        return Window(from_at=window.from_at, until_at=gone_at)
    there_from_at = first_seen_at if oldest_at is None else min(first_seen_at, oldest_at)
    return Window(from_at=max(window.from_at, there_from_at), until_at=min(window.until_at, now_at))


def _rounds(target_id: int, span: PlanSpan, window: Window) -> int:
    until_at = window.until_at if span.until_at is None else min(window.until_at, span.until_at)
    from_at = max(window.from_at, span.from_at)
    phase_id = span.phase_ids.get(target_id, target_id)
    return rounds_between(from_at, until_at, target_id=phase_id, every_us=span.every_us[target_id])
