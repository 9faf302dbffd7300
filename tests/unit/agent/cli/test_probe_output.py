"""The summary below the runs: one sentence for each kind of failure that occurred, and no other."""

from dataclasses import replace

import pytest

from isochrone_agent.cli import probe_output
from isochrone_agent.probe.measurement import ONLY_HIDDEN_REASONING
from isochrone_agent.url import SPEAKS_HTTP, SPEAKS_TLS
from isochrone_wire.model import Outcome, Quality, Sample

FINE = Sample(target_id=1, round_at=0, outcome=Outcome.OK, dispatched_at=0, ttft_us=250_000, tokens_per_second=50.0)
UNTOLD = Sample(
    target_id=1, round_at=0, outcome=Outcome.GARBLED, dispatched_at=0, http_status=200, error=ONLY_HIDDEN_REASONING
)
UNCOUNTED = replace(FINE, tokens_per_second=None)
FIRST = "first token after 250.0 ms"
GARBLED = replace(UNTOLD, error="the stream finished without a single token")
MISSING = replace(UNTOLD, outcome=Outcome.HTTP_ERROR, http_status=404, error="HTTP 404")
REFUSED = replace(MISSING, http_status=400, error="HTTP 400: no such option")
SPEECHLESS = replace(MISSING, http_status=500, error="HTTP 500")
CLOSED = replace(UNTOLD, outcome=Outcome.TRUNCATED, http_status=None, error="the provider closed the connection")


@pytest.mark.parametrize(
    ("sample", "words", "misleading"),
    [
        (UNTOLD, "increase --max-tokens, or set a lower --effort", "--base-url"),
        (GARBLED, "check --base-url", "--max-tokens"),
        (MISSING, "--base-url usually ends in /v1", "its message above"),
        (REFUSED, "its message above", "/v1"),
        (SPEECHLESS, "an error without a message", "above"),
        (CLOSED, "if the port speaks TLS, use https://", "terminal marker"),
        (replace(CLOSED, tls_us=5), "before its terminal marker", "https://"),
        (replace(CLOSED, error=f"TLS: {SPEAKS_HTTP}"), "scheme of --base-url may not fit", "certificate"),
        (replace(GARBLED, error=SPEAKS_TLS), "scheme of --base-url may not fit", "/v1"),
    ],
    ids=[
        *("all-untold", "garbled", "not-found", "refused", "speechless"),
        *("closed", "closed-under-tls", "speaks-http", "speaks-tls"),
    ],
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


@pytest.mark.parametrize(
    ("samples", "lines"),
    [
        ([FINE, FINE], ["first token after 250.0 ms, 50.0 tokens/s: median of 2 of 2 runs"]),
        ([UNCOUNTED, FINE, UNCOUNTED], [f"{FIRST}: median of 3 of 3 runs", "50.0 tokens/s: median of 1 of 3 runs"]),
        ([UNCOUNTED, REFUSED], [f"{FIRST}: median of 1 of 2 runs", "no run has a speed"]),
        ([replace(FINE, tcp_us=50_000), FINE], [f"{FIRST} (300.0 ms on a new connection), 50.0 tokens/s: median of 2"]),
    ],
    ids=["all", "one-speed", "no-speed", "warm"],
)
def test_a_median_states_its_own_runs(samples: list[Sample], lines: list[str]) -> None:
    """First tokens, speeds and new connections are each counted over the runs that have them."""
    for line, expected in zip(probe_output.summary(samples), lines, strict=False):
        assert line.startswith(expected)


def test_each_flag_is_explained_once() -> None:
    """Every flag that a row shows has its meaning below, and no other flag does. No probe that was sent is blocked."""
    samples = [replace(FINE, quality=Quality.LAGGED | Quality.BUFFERED), replace(FINE, quality=Quality.BUFFERED)]
    [_, *lines] = probe_output.summary(samples)
    assert [line.partition(":")[0] for line in lines] == ["lagged", "buffered"]
    raised = [flag for flag in Quality if flag not in (Quality.CLOCK_UNSYNCED, Quality.BLOCKED)]
    for flag in raised:
        assert any(
            line.startswith(f"{flag.labels[0]}: ") for line in probe_output.summary([replace(FINE, quality=flag)])
        )


@pytest.mark.parametrize(("counted", "chars", "expected"), [(0, 800, 1), (0, 0, 0), (20, 800, 0), (None, 800, 0)])
def test_a_count_of_zero_tokens_has_a_reason(counted: int | None, chars: int, expected: int) -> None:
    """A provider that streams text and counts 0 tokens is the reason of `tokens 0` and of the missing speed."""
    sample = replace(UNCOUNTED, output_tokens=counted, output_chars=chars)
    assert sum("counts no output tokens" in line for line in probe_output.summary([sample])) == expected


FLAGGED = replace(FINE, quality=Quality.LAGGED | Quality.BUFFERED, e2e_us=6_743_000, dns_us=12_300, rtt_us=250)
LONG = replace(
    REFUSED, error="HTTP 400: " + "the parameter reasoning_effort of this model takes low, medium or high; " * 3
)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_every_line_fits_the_terminal(width: int) -> None:
    """Rows with flags and errors, sentences and the legend are no wider than the terminal, and no word is broken."""
    rows = [probe_output.sample_row(7, sample, width=width) for sample in (FINE, FLAGGED, LONG, REFUSED)]
    text = "\n".join(
        [probe_output.header_row(width=width), *rows, *probe_output.footer([FLAGGED, LONG], [], None, [], width=width)]
    )
    assert max(map(len, text.splitlines())) <= width
    for words in ("(lagged, buffered)", "reasoning_effort", "connection (dns + tcp + tls)"):
        assert words in " ".join(text.split())


def test_a_row_stays_on_one_line_if_it_fits() -> None:
    """Flags follow the outcome where the terminal is wide enough."""
    assert probe_output.sample_row(7, FLAGGED, width=100).endswith("ok (lagged, buffered)")
