"""The summary below the runs: one sentence for each kind of failure that occurred, and no other."""

import random
from dataclasses import replace
from typing import Any

import pytest

from isochrone_agent.cli import probe_report
from isochrone_agent.cli.probe_report import fit_line, judge, make_prompt, percentiles, summarise, verdict_sentence
from isochrone_agent.probe.destinations import SPEAKS_HTTP, SPEAKS_TLS
from isochrone_agent.probe.measurement import ONLY_HIDDEN_REASONING
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
        (GARBLED, "check --dialect and --base-url", "--max-tokens"),
        (MISSING, "--base-url usually ends in /v1", "its message above"),
        (REFUSED, "its message above", "/v1"),
        (SPEECHLESS, "an error without a message", "above"),
        (CLOSED, "if the port speaks TLS, use https://", "incomplete"),
        (replace(CLOSED, tls_us=5), "answer is incomplete", "https://"),
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
    [sentence] = probe_report.summary([sample])
    assert words in sentence
    assert misleading not in sentence


@pytest.mark.parametrize("outcome", [one for one in Outcome if one.failed or one is Outcome.THROTTLED])
def test_every_failure_has_a_sentence(outcome: Outcome) -> None:
    """An outcome without an explanation would leave a run without a reason below the table."""
    [sentence] = probe_report.summary([replace(FINE, outcome=outcome, error="why")])
    assert sentence.endswith(".")


def test_each_sentence_comes_once() -> None:
    """Runs with the same failure share one sentence, in the order of the outcomes; a success has none."""
    first, *sentences = probe_report.summary([UNTOLD, MISSING, FINE, REFUSED, MISSING, GARBLED, UNTOLD])
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
    for line, expected in zip(probe_report.summary(samples), lines, strict=False):
        assert line.startswith(expected)


def test_each_flag_is_explained_once() -> None:
    """Every flag that a row shows has its meaning below, and no other flag does. No probe that was sent is blocked."""
    samples = [replace(FINE, quality=Quality.LAGGED | Quality.BUFFERED), replace(FINE, quality=Quality.BUFFERED)]
    [_, *lines] = probe_report.summary(samples)
    assert [line.partition(":")[0] for line in lines] == ["lagged", "buffered"]
    raised = [flag for flag in Quality if flag not in (Quality.CLOCK_UNSYNCED, Quality.BLOCKED)]
    for flag in raised:
        assert any(
            line.startswith(f"{flag.labels[0]}: ") for line in probe_report.summary([replace(FINE, quality=flag)])
        )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tokens_per_second": 50.0}, None),
        ({"first_chunk_tokens": None}, "apart from hidden reasoning"),
        ({"first_chunk_tokens": 1}, "no token after its first chunk"),
        ({"quality": Quality.BUFFERED}, None),
    ],
)
def test_a_missing_speed_has_a_reason(fields: dict[str, Any], reason: str | None) -> None:
    """A success without a speed says why, unless a flag does."""
    sample = replace(FINE, **{"tokens_per_second": None, "quality": Quality.CLEAN, **fields})
    found = [line for line in probe_report.summary([sample]) if line.startswith("no tok/s")]
    assert [reason in line for line in found if reason] == [True] * bool(reason)
    assert bool(found) == bool(reason)


def test_unknown_frames_are_counted() -> None:
    """Frames that are neither content nor metadata are in the summary."""
    assert any("this dialect: 3" in line for line in probe_report.summary([replace(FINE, frames_unknown=3)]))


FLAGGED = replace(FINE, quality=Quality.LAGGED | Quality.BUFFERED, e2e_us=6_743_000, dns_us=12_300, rtt_us=250)
LONG = replace(
    REFUSED, error="HTTP 400: " + "the parameter reasoning_effort of this model takes low, medium or high; " * 3
)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_every_line_fits_the_terminal(width: int) -> None:
    """Rows with flags and errors, sentences and the legend are no wider than the terminal, and no word is broken."""
    rows = [probe_report.sample_row(7, sample, width=width) for sample in (FINE, FLAGGED, LONG, REFUSED)]
    text = "\n".join(
        [
            probe_report.row(probe_report.HEADINGS, width),
            *rows,
            *probe_report.footer([FLAGGED, LONG], [], None, [], width=width),
        ]
    )
    assert max(map(len, text.splitlines())) <= width
    for words in ("(lagged, buffered)", "reasoning_effort", "connection (dns + tcp + tls)"):
        assert words in " ".join(text.split())


def test_a_row_stays_on_one_line_if_it_fits() -> None:
    """Flags follow the outcome where the terminal is wide enough."""
    assert probe_report.sample_row(7, FLAGGED, width=100).endswith("ok (lagged, buffered)")


SLOW = replace(FINE, ttft_us=900_000, tokens_per_second=9.0)
UNTIMED = replace(FINE, tokens_per_second=None)
FAILED = Sample(target_id=1, round_at=0, outcome=Outcome.HTTP_ERROR, dispatched_at=0, http_status=500, error="no | <b>")
# It had a first token before it failed.
CUT = replace(FINE, outcome=Outcome.TRUNCATED)


@pytest.mark.parametrize(
    ("samples", "ttft", "speed"),
    [
        ([FINE], (True, 250_000), (True, 50.0)),
        ([SLOW], (False, 900_000), (False, 9.0)),
        ([FINE, FINE, SLOW], (True, 250_000), (True, 50.0)),
        ([FINE, SLOW, SLOW], (False, 900_000), (False, 9.0)),
        ([FINE, FINE, FAILED], (True, 250_000), (True, 50.0)),
        ([FINE, FAILED], (False, None), (False, None)),
        ([FINE, CUT, CUT], (False, None), (False, None)),
        ([FAILED], (False, None), (False, None)),
        ([UNTIMED, FINE], (True, 250_000), (True, 50.0)),
        ([UNTIMED, UNTIMED], (True, 250_000), (False, None)),
        ([], (False, None), (False, None)),
    ],
)
def test_the_median_decides(
    samples: list[Sample], ttft: tuple[bool, float | None], speed: tuple[bool, float | None]
) -> None:
    """Failed runs are beyond both limits, runs without a speed are left out; without a median no limit is kept."""
    verdicts = judge(samples, max_ttft_us=500_000, min_tokens_per_second=30)
    assert [(verdict.kept, verdict.median) for verdict in verdicts] == [ttft, speed]


def test_the_limit_itself_is_kept() -> None:
    """A median equal to the limit keeps it; without a limit there is no verdict on it."""
    assert all(verdict.kept for verdict in judge([FINE], max_ttft_us=250_000, min_tokens_per_second=50))
    assert judge([FINE], max_ttft_us=None, min_tokens_per_second=None) == []
    assert [verdict.metric for verdict in judge([FINE], max_ttft_us=None, min_tokens_per_second=30)] == [
        "tokens_per_second"
    ]


@pytest.mark.parametrize(
    ("samples", "sentences"),
    [
        (
            [FINE, FINE, FAILED],
            (
                "limit kept: first token after at most 500.0 ms; the median of 3 runs is 250.0 ms",
                "limit kept: at least 30.0 tokens/s; the median of 3 runs is 50.0 tokens/s",
            ),
        ),
        (
            [FINE, FAILED],
            (
                "limit not kept: first token after at most 500.0 ms; 1 of 2 runs failed",
                "limit not kept: at least 30.0 tokens/s; 1 of 2 runs failed",
            ),
        ),
        (
            [UNTIMED],
            (
                "limit kept: first token after at most 500.0 ms; the median of 1 runs is 250.0 ms",
                "limit not kept: at least 30.0 tokens/s; none of 1 runs has a speed",
            ),
        ),
    ],
)
def test_each_verdict_has_its_reason(samples: list[Sample], sentences: tuple[str, ...]) -> None:
    """The sentence has the limit, the verdict, and the median or why there is none."""
    verdicts = judge(samples, max_ttft_us=500_000, min_tokens_per_second=30)
    assert tuple(map(verdict_sentence, verdicts)) == sentences


def test_the_summary_is_markdown_whatever_a_provider_sends() -> None:
    """Each run is one row with a cell per heading, and texts from elsewhere are escaped."""
    verdicts = judge([FINE, FAILED], max_ttft_us=500_000, min_tokens_per_second=None)
    text = probe_report.markdown("m at http://a_b", [[FINE], [FAILED]], verdicts)
    assert text.startswith("### m at http://a\\_b\n\n- limit not kept: first token")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert {len(row.replace("\\|", "").strip("|").split("|")) for row in rows} == {11}
    assert "no \\| \\<b\\>" in rows[-1]


def stream(
    *, dispatched_at: int = 0, e2e_us: int = 1_000_000, tokens: int = 100, outcome: Outcome = Outcome.OK
) -> Sample:
    return Sample(
        target_id=1,
        round_at=0,
        outcome=outcome,
        dispatched_at=dispatched_at,
        tcp_us=0,
        ttft_us=e2e_us // 10,
        e2e_us=e2e_us,
        output_tokens=tokens,
        tokens_per_second=tokens / (e2e_us / 1e6),
    )


def test_throughput_is_over_the_whole_burst() -> None:
    """Throughput is over the whole burst, failures add no tokens, and a burst without success has no figures."""
    burst = summarise([stream(), stream(), stream(), stream(dispatched_at=1_000_000)])
    assert (burst.streams, burst.succeeded) == (4, 4)
    assert burst.tokens_per_second == pytest.approx(200)
    assert burst.median_tokens_per_second == pytest.approx(100)
    burst = summarise([stream(), stream(outcome=Outcome.THROTTLED)])
    assert (burst.streams, burst.succeeded) == (2, 1)
    assert burst.tokens_per_second == pytest.approx(100)
    burst = summarise([stream(outcome=Outcome.HTTP_ERROR)])
    assert (burst.tokens_per_second, burst.ttft_median_us, burst.ttft_max_us) == (None, None, None)


def test_a_line_is_found_exactly() -> None:
    """Points on a line yield it; one ten times too high changes the slope by less than 10 %."""
    line = fit_line([(100 * n, 50_000 + 3 * 100 * n) for n in range(1, 8)])
    assert line is not None
    assert (line.fixed_us, line.us_per_token, line.low, line.high) == pytest.approx((50_000, 3, 3, 3))
    points = [(100 * n, 50_000 + 300 * n) for n in range(1, 12)]
    points[-1] = (points[-1][0], 10 * points[-1][1])
    line = fit_line(points)
    assert line is not None
    assert line.us_per_token == pytest.approx(3, rel=0.1)


def test_the_interval_covers_the_truth() -> None:
    """Of 400 noisy sweeps with repeated lengths, 93 % to 98.5 % of the intervals contain the true slope."""
    draw = random.Random(7)
    held = 0
    for _ in range(400):
        points = [
            (x, round(80_000 + 4 * x + draw.gauss(0, 3_000))) for x in (100, 500, 1000, 2000, 4000) for _ in range(4)
        ]
        line = fit_line(points)
        assert line is not None
        assert line.low is not None
        assert line.high is not None
        held += line.low <= 4 <= line.high
    assert 0.93 <= held / 400 <= 0.985


@pytest.mark.parametrize("points", [[], [(100, 5)], [(100, 5), (100, 6)]])
def test_no_line_without_two_lengths(points: list[tuple[int, int]]) -> None:
    """A slope needs two different lengths."""
    assert fit_line(points) is None


@pytest.mark.parametrize("words", [4, 100, 5000])
def test_prompts_have_their_length(words: int) -> None:
    """A prompt has the requested number of words."""
    assert len(make_prompt(words).split()) == max(words, 4)


def test_percentiles_are_of_the_successful_runs() -> None:
    """P50, p90 and p99 of each metric that a run has, by nearest rank, whatever the order; failures have none."""
    runs = [replace(FINE, ttft_us=at, tokens_per_second=None) for at in range(100, 0, -1)]
    assert percentiles([*runs, replace(GARBLED, ttft_us=1_000)]) == {"ttft_us": {"p50": 50, "p90": 90, "p99": 99}}
    assert percentiles([GARBLED]) == {}
