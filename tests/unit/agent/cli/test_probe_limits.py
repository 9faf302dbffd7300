"""The median of all runs decides the limits of `probe`; and the Markdown of its runs."""

from dataclasses import replace

import pytest

from isochrone_agent.cli import probe_summary
from isochrone_agent.cli.probe_limits import judge
from isochrone_agent.cli.probe_output import verdict_sentence
from isochrone_wire.model import Outcome, Sample

FINE = Sample(target_id=1, round_at=0, outcome=Outcome.OK, dispatched_at=0, ttft_us=250_000, tokens_per_second=50.0)
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
    """Failed runs are beyond both limits, and runs without a speed are left out of the median speed; without a median
    no limit is kept.
    """
    verdicts = judge(samples, max_ttft_us=500_000, min_tokens_per_second=30)
    assert [(verdict.kept, verdict.median) for verdict in verdicts] == [ttft, speed]


def test_the_limit_itself_is_kept() -> None:
    """A median equal to the limit keeps it."""
    assert all(verdict.kept for verdict in judge([FINE], max_ttft_us=250_000, min_tokens_per_second=50))


def test_only_given_limits_are_judged() -> None:
    """Without a limit there is no verdict on it."""
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
    text = probe_summary.markdown("m at http://a_b", [[FINE], [FAILED]], verdicts)
    assert text.startswith("### m at http://a\\_b\n\n- limit not kept: first token")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert {len(row.replace("\\|", "").strip("|").split("|")) for row in rows} == {11}
    assert "no \\| \\<b\\>" in rows[-1]
