"""What a run has shown, as text: a table by kind of fault, and the line that others read. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from chaos.faults import NATURES, Fault, Kind
from chaos.oracle import Finding

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fault that was carried out: from when to when (CLOCK_MONOTONIC), whom it struck, and what became of it."""

    fault: Fault
    from_ns: int
    until_ns: int
    vantages: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What went on meanwhile, by vantage: when samples were recorded and when batches arrived, both in order and on
    CLOCK_MONOTONIC.
    """

    recorded_ns: Mapping[str, Sequence[int]]
    arrived_ns: Mapping[str, Sequence[int]]

    def recovery_ns(self, event: Event) -> int | None:
        """From the end of a fault, for what was killed its restart, to the first batch after it of the last of those it
        struck.
        """
        first = [_after(self.arrived_ns[vantage], event.until_ns) for vantage in event.vantages]
        return max(found for found in first if found) - event.until_ns if all(first) else None

    def recorded_during(self, event: Event) -> int:
        """How many samples those it struck recorded from its beginning to their recovery."""
        until_ns = event.until_ns + (self.recovery_ns(event) or 0)
        return sum(_between(self.recorded_ns[vantage], event.from_ns, until_ns) for vantage in event.vantages)


def table(events: Iterable[Event], course: Course) -> str:
    """How often each kind struck, what was recorded until it was over, and how long that took."""
    events = list(events)
    rows = [_row(kind, [event for event in events if event.fault.kind is kind], course) for kind in Kind]
    head = f"{'fault':<17}{'times':>6}{'recorded until':>16}{'recovery':>10}{'longest':>10}"
    return "\n".join([head, f"{'':<23}{'recovery':>16}{'median s':>10}{'s':>10}", *filter(None, rows)])


def sentences(kinds: Iterable[Kind]) -> str:
    """What the names of the table stand for."""
    return "\n".join(f"{kind:<17} {NATURES[kind].sentence}" for kind in kinds)


def result(finding: Finding, *, kills: int) -> str:
    """The last line."""
    parts = {
        "recorded": finding.recorded,
        "stored": finding.stored,
        "lost": finding.lost,
        "duplicated": finding.duplicated,
        "dropped": finding.dropped,
        "spooled": finding.spooled,
        "invented": finding.invented,
        "unbalanced": finding.unbalanced,
        "kills": kills,
    }
    return "RESULT " + " ".join(f"{name}={value}" for name, value in parts.items())


def _row(kind: Kind, events: Sequence[Event], course: Course) -> str:
    if not events:
        return ""
    took = [ns / SECOND_NS for event in events if (ns := course.recovery_ns(event)) is not None]
    recorded = sum(course.recorded_during(event) for event in events)
    times = f"{median(took):>10.1f}{max(took):>10.1f}" if took else f"{'-':>10}{'-':>10}"
    return f"{kind:<17}{len(events):>6}{recorded:>16}{times}"


def _after(instants: Sequence[int], at_ns: int) -> int | None:
    place = bisect_right(instants, at_ns)
    return instants[place] if place < len(instants) else None


def _between(instants: Sequence[int], from_ns: int, until_ns: int) -> int:
    return bisect_right(instants, until_ns) - bisect_right(instants, from_ns)
