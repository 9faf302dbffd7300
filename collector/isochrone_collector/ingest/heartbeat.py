"""Heartbeats cut to what their columns can hold: an invalid value must not fail the samples of the same push. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite

from isochrone_collector.ingest.validation import MAX_DISTANCE_US, MAX_INSTANT_AT, MAX_INT64, MAX_VANTAGE_CHARS, is_name
from isochrone_wire.model import Heartbeat, Spend

_MAX_REASON_CHARS = 500
_MAX_DROP_REASONS = 50
_MAX_SPEND_LINES = 100
_MAX_USD = 1e9
_COUNTS = ("plan_version", "spool_depth", "finished", "stored", "quarantined", "rounds_missed")


def trimmed(heartbeat: Heartbeat) -> Heartbeat:
    """Return a heartbeat that fits its columns."""
    return replace(
        heartbeat,
        **{name: _count(getattr(heartbeat, name)) for name in _COUNTS},
        agent_version=_printable(heartbeat.agent_version)[:MAX_VANTAGE_CHARS],
        spool_oldest_at=heartbeat.spool_oldest_at if _is_instant(heartbeat.spool_oldest_at) else 0,
        dropped={name: _count(n) for name, n in list(heartbeat.dropped.items())[:_MAX_DROP_REASONS] if is_name(name)},
        next_heartbeat_us=_duration(heartbeat.next_heartbeat_us) or 0,
        clock_offset_us=_offset(heartbeat.clock_offset_us),
        clock_uncertainty_us=_duration(heartbeat.clock_uncertainty_us),
        loop_lag_us=_duration(heartbeat.loop_lag_us),
        refused_plan_version=None if heartbeat.refused_plan_version is None else _count(heartbeat.refused_plan_version),
        refused_plan_reason=_sentence(heartbeat.refused_plan_reason),
        missing_keys=_sentence(heartbeat.missing_keys),
        refused_targets=_sentence(heartbeat.refused_targets),
        spend=tuple(_spend(heartbeat.spend)),
    )


def _spend(lines: Iterable[Spend]) -> Iterable[Spend]:
    for line in list(lines)[:_MAX_SPEND_LINES]:
        if is_name(line.provider) and _is_instant(line.day_at):
            usd = min(max(line.usd, 0.0), _MAX_USD) if isfinite(line.usd) else 0.0
            yield replace(line, usd=usd, tokens=_count(line.tokens), requests=_count(line.requests))


def _count(number: int) -> int:
    return min(max(number, 0), MAX_INT64)


def _duration(us: int | None) -> int | None:
    return None if us is None else min(_count(us), MAX_DISTANCE_US)


def _offset(us: int | None) -> int | None:
    return None if us is None else min(max(us, -MAX_DISTANCE_US), MAX_DISTANCE_US)


def _is_instant(at: int) -> bool:
    return 0 <= at <= MAX_INSTANT_AT


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))


def _sentence(text: str | None) -> str | None:
    return None if text is None else _printable(text)[:_MAX_REASON_CHARS]
