"""Every dialect with every fault of the simulator, over a real socket: outcome and partial timings."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures.simulator import Simulator, running
from isochrone_agent.clock import now_at
from isochrone_agent.probe.prober import Prober
from isochrone_common.dialects import DIALECTS
from isochrone_wire.model import Outcome, Quality, Sample, Target, Timeouts, Workload
from testdata.trust import system_trust

QUICK = Timeouts(connect_us=10_000_000, first_token_us=1_000_000, gap_us=500_000, total_us=20_000_000)
PATIENT = Timeouts(connect_us=10_000_000, first_token_us=20_000_000, gap_us=20_000_000, total_us=60_000_000)
FINE = [
    *("none", "slow-headers", "crlf", "cr", "comments", "bundled-first", "one-chunk", "null-content", "byte-by-byte"),
    *(
        "split-code-points",
        "no-usage",
        "no-done",
        "usage-in-choice",
        "absurd-usage",
        "reasoning",
        "tool-call",
        "garbage",
    ),
    *("invalid-utf8", "after-end", "empty-data"),
]
BROKEN = {
    "401": (Outcome.HTTP_ERROR, "HTTP 401"),
    "403": (Outcome.HTTP_ERROR, "HTTP 403"),
    "404": (Outcome.HTTP_ERROR, "HTTP 404"),
    "429": (Outcome.THROTTLED, "HTTP 429"),
    "500": (Outcome.HTTP_ERROR, "HTTP 500"),
    "503": (Outcome.HTTP_ERROR, "HTTP 503"),
    "html": (Outcome.GARBLED, "the response is text/html"),
    "silence": (Outcome.TIMED_OUT, "no token within 1 s"),
    "headers-only": (Outcome.TIMED_OUT, "no token within 1 s"),
    "stall": (Outcome.STALLED, "no token for 0.5 s"),
    "endless-comments": (Outcome.STALLED, "no token for 0.5 s"),
    "cut": (Outcome.TRUNCATED, "closed the connection in the middle"),
    "reset": (Outcome.TRUNCATED, "closed the connection in the middle"),
    "truncated": (Outcome.TRUNCATED, "without its terminal marker"),
    "in-band-error": (Outcome.STREAM_ERROR, "error inside the stream"),
    "in-band-error-first": (Outcome.STREAM_ERROR, "error inside the stream"),
    "huge-line": (Outcome.GARBLED, "longer than"),
    "role-only": (Outcome.EMPTY, "without a single token"),
}
PARTIAL = ("stall", "cut", "reset", "truncated", "in-band-error", "huge-line")
# The faults that end with a timeout.
ENDLESS = ("silence", "headers-only", "stall", "endless-comments")


async def probe(
    simulator: Simulator, dialect: str, model: str, *, timeouts: Timeouts = PATIENT, **workload: Any
) -> Sample:
    target = Target(
        id=7,
        name=model,
        provider="sim",
        model=model,
        base_url=simulator.base_url_of(dialect),
        dialect=dialect,
        workload=Workload(max_output_tokens=40, timeouts=timeouts, **workload),
    )
    prober = Prober(vantage="here", tls=system_trust())
    return await prober.probe(target, round_at=now_at())


async def probe_all(simulator: Simulator, model: str, **workload: Any) -> list[tuple[str, Sample]]:
    samples = await asyncio.gather(*(probe(simulator, dialect, model, **workload) for dialect in DIALECTS))
    return list(zip(DIALECTS, samples, strict=True))


@pytest.mark.parametrize("fault", FINE)
async def test_what_is_odd_but_fine(fault_simulator: Simulator, fault: str) -> None:
    """In every dialect: a success, forty tokens counted or estimated, the first of them timed."""
    for dialect, sample in await probe_all(fault_simulator, f"fault-{fault}"):
        assert (sample.outcome, sample.error) == (Outcome.OK, None), dialect
        assert sample.ttft_us, dialect
        assert (sample.output_tokens == 40) != (Quality.ESTIMATED_TOKENS in sample.quality), dialect


@pytest.mark.parametrize("fault", BROKEN)
async def test_what_is_broken(fault_simulator: Simulator, fault: str) -> None:
    """In each dialect: outcome, sentence, timings of streams that had begun, and the wait of a throttled sample."""
    timeouts = QUICK if fault in ENDLESS else PATIENT
    outcome, words = BROKEN[fault]
    for dialect, sample in await probe_all(fault_simulator, f"fault-{fault}", timeouts=timeouts):
        assert sample.outcome is outcome, (dialect, sample.error)
        assert words in (sample.error or ""), dialect
        if fault == "429":
            assert sample.ratelimit is not None, dialect
            assert sample.ratelimit.retry_after_us == 2_000_000, dialect
        if fault in ENDLESS:
            assert sample.timeout_us == (QUICK.gap_us if outcome is Outcome.STALLED else QUICK.first_token_us), dialect
        if fault in ("silence", "cut", "stall"):
            assert sample.rtt_us, dialect
        if fault in PARTIAL:
            assert sample.ttft_us, dialect
            assert sample.chunks == 5, dialect


CHOOSY = """
[[models]]
id = "claude-opus-4-7"
provider = "sim"
ttft_ms = 50
tokens_per_second = 200
answer_tokens = 40
reasoning = true
fixed_temperature = true
efforts = ["low", "medium", "high"]
"""


@pytest.fixture(scope="module")
def strict_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """A simulator of a newer model: one allowed temperature, and efforts as words."""
    world = tmp_path_factory.mktemp("world") / "world.toml"
    world.write_text(CHOOSY)
    with running("--world", str(world)) as simulator:
        yield simulator


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_plain_request_is_one_that_every_model_takes(strict_model: Simulator, dialect: str) -> None:
    """Parameters that the workload does not set are not sent, so that strict models answer."""
    sample = await probe(strict_model, dialect, "claude-opus-4-7")
    assert (sample.outcome, sample.output_tokens) == (Outcome.OK, 40), sample.error


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_refusal_has_the_message_of_the_provider(strict_model: Simulator, dialect: str) -> None:
    """A pinned temperature is sent even if it will be refused, and the sample has the provider's message."""
    warm = await probe(strict_model, dialect, "claude-opus-4-7", temperature=0.0)
    assert (warm.outcome, warm.http_status) == (Outcome.HTTP_ERROR, 400)
    assert "`temperature` does not support 0" in (warm.error or "")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_effort_reaches_a_model_that_takes_words(strict_model: Simulator, dialect: str) -> None:
    """A pinned effort makes the model stream its reasoning, and speed is measured with or without it."""
    sample = await probe(strict_model, dialect, "claude-opus-4-7", reasoning_effort="low")
    assert sample.outcome is Outcome.OK, sample.error
    assert sample.ttft_us
    assert sample.ttfat_us
    assert sample.ttft_us < sample.ttfat_us
    [record] = strict_model.truth(sample.request_id)
    # The pace of the provider, which a busy machine slows down.
    streamed_ns = record["last_token_at_ns"] - record["first_token_at_ns"]
    tokens = record["tokens"]["answer"] + record["tokens"]["reasoning"]
    assert sample.tokens_per_second == pytest.approx((tokens - 1) * 1e9 / streamed_ns, rel=0.5)


async def test_the_table_is_the_simulators(fault_simulator: Simulator) -> None:
    """Every fault of the simulator is in one of the lists above."""
    from isochrone_sim.faults import FAULTS

    assert set(FAULTS) - {"flood"} == {*FINE, *BROKEN}
