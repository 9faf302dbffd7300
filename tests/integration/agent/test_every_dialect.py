"""Every dialect against every fault of the simulator, over a real socket: the outcome, and the timings there are."""

import ssl

import pytest

from fix_simulator import Simulator
from isochrone_agent.clock import now_at
from isochrone_agent.dialects import DIALECTS
from isochrone_agent.prober import Prober
from isochrone_wire.model import Outcome, Quality, Sample, Target, Timeouts, Workload

QUICK = Timeouts(connect_us=2_000_000, first_token_us=2_000_000, gap_us=500_000, total_us=9_000_000)
FINE = [
    *("none", "slow-headers", "crlf", "cr", "comments", "bundled-first", "one-chunk", "null-content", "byte-by-byte"),
    *("split-code-points", "no-usage", "no-done", "usage-in-choice", "absurd-usage", "reasoning", "tool-call"),
]
BROKEN = {
    "401": (Outcome.HTTP_ERROR, "HTTP 401"),
    "403": (Outcome.HTTP_ERROR, "HTTP 403"),
    "404": (Outcome.HTTP_ERROR, "HTTP 404"),
    "429": (Outcome.THROTTLED, "HTTP 429"),
    "500": (Outcome.HTTP_ERROR, "HTTP 500"),
    "503": (Outcome.HTTP_ERROR, "HTTP 503"),
    "html": (Outcome.GARBLED, "text/html came instead"),
    "silence": (Outcome.TIMED_OUT, "no token within 2 s"),
    "headers-only": (Outcome.TIMED_OUT, "no token within 2 s"),
    "stall": (Outcome.STALLED, "no token for 0.5 s"),
    "endless-comments": (Outcome.STALLED, "no token for 0.5 s"),
    "cut": (Outcome.TRUNCATED, "closed the connection in the middle"),
    "reset": (Outcome.TRUNCATED, "closed the connection in the middle"),
    "truncated": (Outcome.TRUNCATED, "without its terminal marker"),
    "in-band-error": (Outcome.HTTP_ERROR, "error inside the stream"),
    "in-band-error-first": (Outcome.HTTP_ERROR, "error inside the stream"),
    "garbage": (Outcome.GARBLED, "not JSON"),
    "invalid-utf8": (Outcome.GARBLED, "not JSON"),
    "huge-line": (Outcome.GARBLED, "longer than"),
    "role-only": (Outcome.GARBLED, "without a single token"),
    "after-end": (Outcome.GARBLED, "cannot come when the stream is done"),
}
PARTIAL = ("stall", "cut", "reset", "truncated", "in-band-error", "garbage", "huge-line")


async def probe(simulator: Simulator, dialect: str, fault: str) -> Sample:
    target = Target(
        id=7,
        name=fault,
        provider="sim",
        model=f"fault-{fault}",
        base_url=simulator.base_url_of(dialect),
        dialect=dialect,
        workload=Workload(max_output_tokens=40, timeouts=QUICK),
    )
    prober = Prober(vantage="here", tls=ssl.create_default_context())
    return await prober.probe(target, round_at=now_at())


@pytest.mark.parametrize("fault", FINE)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_is_odd_but_fine(fault_simulator: Simulator, dialect: str, fault: str) -> None:
    """In every dialect: a success, forty tokens counted or estimated, the first of them timed."""
    sample = await probe(fault_simulator, dialect, fault)
    assert (sample.outcome, sample.error) == (Outcome.OK, None)
    assert sample.ttft_us
    assert (sample.output_tokens == 40) != (Quality.ESTIMATED_TOKENS in sample.quality)


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_is_broken(fault_simulator: Simulator, dialect: str, fault: str) -> None:
    """In every dialect: the outcome of the fault, a sentence, and the partial timings of streams that had begun."""
    sample = await probe(fault_simulator, dialect, fault)
    outcome, words = BROKEN[fault]
    assert sample.outcome is outcome, sample.error
    assert words in (sample.error or "")
    if fault in PARTIAL:
        assert sample.ttft_us
        assert sample.chunks == 5


async def test_the_table_is_the_simulators(fault_simulator: Simulator) -> None:
    """Every fault there is stands in one of the lists above, so that a new one cannot be forgotten."""
    from isochrone_sim.faults import FAULTS

    assert set(FAULTS) - {"flood"} == {*FINE, *BROKEN}
