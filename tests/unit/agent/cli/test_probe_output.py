"""The summary below the runs: one sentence for each kind of failure that occurred, and no other."""

from dataclasses import replace

import pytest

from isochrone_agent.cli import probe_output
from isochrone_agent.probe.measurement import ONLY_HIDDEN_REASONING
from isochrone_wire.model import Outcome, Sample

FINE = Sample(target_id=1, round_at=0, outcome=Outcome.OK, dispatched_at=0, ttft_us=250_000, tokens_per_second=50.0)
UNTOLD = Sample(
    target_id=1, round_at=0, outcome=Outcome.GARBLED, dispatched_at=0, http_status=200, error=ONLY_HIDDEN_REASONING
)
GARBLED = replace(UNTOLD, error="the stream finished without a single token")
MISSING = replace(UNTOLD, outcome=Outcome.HTTP_ERROR, http_status=404, error="HTTP 404")
REFUSED = replace(MISSING, http_status=400, error="HTTP 400")


@pytest.mark.parametrize(
    ("sample", "words", "misleading"),
    [
        (UNTOLD, "increase --max-tokens, or set a lower --effort", "--base-url"),
        (GARBLED, "check --base-url", "--max-tokens"),
        (MISSING, "--base-url usually ends in /v1", "its message above"),
        (REFUSED, "its message above", "/v1"),
    ],
    ids=["all-untold", "garbled", "not-found", "refused"],
)
def test_a_failure_is_explained(sample: Sample, words: str, misleading: str) -> None:
    """The sentence names the fault that occurred, and does not suggest another."""
    [sentence] = probe_output.summary([sample])
    assert words in sentence
    assert misleading not in sentence


def test_each_sentence_comes_once() -> None:
    """Runs with the same failure share one sentence, in the order of the outcomes; a success has none."""
    first, *sentences = probe_output.summary([UNTOLD, MISSING, FINE, REFUSED, MISSING, GARBLED, UNTOLD])
    assert "median of 1 of 7 runs" in first
    assert len(sentences) == len(set(sentences)) == 4
    assert [word in text for word, text in zip(("404", "its message"), sentences[:2], strict=True)] == [True, True]
