"""The share of outages in which requests hang, as recorded by an agent with `overlap: skip`."""

from dataclasses import replace
from functools import cache, partial
from itertools import product

import structlog

from isochrone_collector.analysis.distribution import outcome_counts
from isochrone_wire.model import SECOND_US
from testdata.outages import CYCLE_US, in_outage, record
from testdata.routing_worlds import target

CYCLES = 48
OUTAGES_S = (70, 100, 130)
EVERY_S = (10, 30, 60)
# The default of an agent's concurrency.
SLOTS = 8


@cache
def error_points() -> dict[str, float]:
    """Return by how many percentage points the reported share is wrong, by outage and interval of the probes."""
    return {
        f"outages of {outage_s} s, every {every_s} s": _error_points(outage_s * SECOND_US, every_s * SECOND_US)
        for outage_s, every_s in product(OUTAGES_S, EVERY_S)
    }


def _error_points(outage_us: int, every_us: int) -> float:
    # The agent logs every probe.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    probed = replace(target(0), every_us=every_us)
    hangs = partial(in_outage, outage_us=outage_us)
    samples = record([probed], from_at=0, until_at=CYCLES * CYCLE_US, hangs=hangs, concurrency=SLOTS)
    outcomes = [sample.outcome.value for sample in samples]
    counts = outcome_counts({name: outcomes.count(name) for name in set(outcomes)})
    return 100 * abs(counts.failed / counts.sent - outage_us / CYCLE_US)
