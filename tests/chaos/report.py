"""The report of a run: a table by kind of fault, and the RESULT line. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from statistics import median

from chaos.faults import FAULT_TYPES, Fault
from chaos.oracle import Verdict
from chaos.reaction import Reaction

SECOND_NS = 1_000_000_000
KIND_WIDTH = max(map(len, FAULT_TYPES))
MAX_RECOVERY_S = 30.0
"""The goal for each measured recovery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An injected fault: its start and end (CLOCK_MONOTONIC), the affected vantages, and a note."""

    fault: Fault
    from_ns: int
    until_ns: int
    vantages: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When each vantage recorded samples, and when its batches were acknowledged: in order, on CLOCK_MONOTONIC."""

    recorded_ns: Mapping[str, Sequence[int]]
    delivered_ns: Mapping[str, Sequence[int]]

    def recovery_ns(self, event: Event) -> int | None:
        """Return the time from the end of a fault until every affected vantage has delivered a batch."""
        first = [_after(self.delivered_ns[vantage], event.until_ns) for vantage in event.vantages]
        return max(found for found in first if found) - event.until_ns if all(first) else None

    def recorded_during(self, event: Event) -> int:
        """Return how many samples the affected vantages recorded from the start of the fault to their recovery."""
        until_ns = event.until_ns + (self.recovery_ns(event) or 0)
        series = (self.recorded_ns[vantage] for vantage in event.vantages)
        return sum(bisect_right(instants, until_ns) - bisect_right(instants, event.from_ns) for instants in series)


def table(events: Iterable[Event], timeline: Timeline) -> str:
    """Return a table of the kinds: count, samples recorded until recovery, and recovery times."""
    events = list(events)
    rows = [_row(kind, [event for event in events if event.fault.kind == kind], timeline) for kind in FAULT_TYPES]
    head = f"{'fault':<{KIND_WIDTH}}{'times':>6}{'recorded until':>16}{'recovery':>10}{'longest':>10}"
    return "\n".join([head, f"{'':<{KIND_WIDTH + 6}}{'recovery':>16}{'median s':>10}{'s':>10}", *filter(None, rows)])


def padded(kind: str) -> str:
    return f"{kind:<{KIND_WIDTH}}"


def sentences(kinds: Iterable[str]) -> str:
    """Return the descriptions of the kinds."""
    return "\n".join(f"{padded(kind)} {FAULT_TYPES[kind].sentence}" for kind in kinds)


def recoveries_s(measured: Mapping[str, Event], timeline: Timeline) -> dict[str, float]:
    """Return the recovery time in seconds after each measured fault; infinite if there was none."""
    found = {name: timeline.recovery_ns(event) for name, event in measured.items()}
    return {name: inf if ns is None else ns / SECOND_NS for name, ns in found.items()}


def result(
    verdict: Verdict, recoveries: Mapping[str, float], reactions: Mapping[str, Reaction], events: Sequence[Event]
) -> str:
    """Return the RESULT line, with the numbers of faults and of their kinds; `recoveries` are in seconds."""
    reacted = {f"{of}_{name}": value for of, one in reactions.items() for name, value in asdict(one).items()}
    measured = {f"{name}_s": f"{seconds:.1f}" for name, seconds in recoveries.items()}
    parts = {
        **asdict(verdict),
        "kills": len(events),
        "faults": len({event.fault.kind for event in events}),
        **measured,
        **reacted,
    }
    return "RESULT " + " ".join(f"{name}={value}" for name, value in parts.items())


def _row(kind: str, events: Sequence[Event], timeline: Timeline) -> str:
    if not events:
        return ""
    took = [ns / SECOND_NS for event in events if (ns := timeline.recovery_ns(event)) is not None]
    recorded = sum(timeline.recorded_during(event) for event in events)
    times = f"{median(took):>10.1f}{max(took):>10.1f}" if took else f"{'-':>10}{'-':>10}"
    return f"{padded(kind)}{len(events):>6}{recorded:>16}{times}"


def _after(instants: Sequence[int], at_ns: int) -> int | None:
    place = bisect_right(instants, at_ns)
    return instants[place] if place < len(instants) else None
