"""The share of an outage in which requests hang, as recorded by an agent whose rounds do not overlap."""

from dataclasses import replace
from functools import cache

import structlog

from isochrone_collector.analysis.distribution import outcome_counts
from isochrone_wire.model import SECOND_US
from testdata.outages import CYCLE_US, OUTAGE_SHARE, in_outage, record
from testdata.routing_worlds import target

CYCLES = 48
EVERY_S = (10, 30, 60)


@cache
def error_points() -> dict[str, float]:
    """Return by how many percentage points the reported share is wrong, by the interval of the probes."""
    return {f"every {every_s} s": 100 * abs(_reported(every_s) - OUTAGE_SHARE) for every_s in EVERY_S}


def _reported(every_s: int) -> float:
    # The agent logs every probe.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    probed = replace(target(0), every_us=every_s * SECOND_US)
    samples = record([probed], from_at=0, until_at=CYCLES * CYCLE_US, hangs=in_outage)
    outcomes = [sample.outcome.value for sample in samples]
    counts = outcome_counts({name: outcomes.count(name) for name in set(outcomes)})
    return counts.failed / counts.sent
