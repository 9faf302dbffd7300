"""The filter of single samples: what cannot be read is refused, with its place."""

import pytest

from isochrone_collector.errors import BadRequest
from isochrone_collector.store.sample_filter import parse

TARGETS = {1: "openai/gpt-5-mini", 2: "qwen/qwen3"}
REGIONS = ["us-east-2", "eu-central-1"]


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        ("ttft", 1, "'ttft' is not a field, one of : = < > <= >=, and a value"),
        ("region:us-east-2 tfft>500", 18, "unknown field 'tfft'; did you mean 'ttft'?"),
        ("ttft>5oo", 1, "'5oo' is not a number of milliseconds"),
        ("ttft>", 1, "'' is not a number"),
        ("http_status>=500ms", 1, "'500ms' is not a number"),
        ("outcome:timeout", 1, "unknown outcome 'timeout'; did you mean 'timed_out'?"),
        ("  region:eu-west*", 3, "unknown region 'eu-west*'"),
        ("target:gpt-6", 1, "unknown target 'gpt-6'"),
        ("outcome>ok", 1, "outcome takes a colon and names"),
        ("error:", 1, "error takes a colon and names"),
        ('ttft>1 error:"reset', 14, "the quotation mark is not closed"),
        ("-", 1, "'-' is not a field"),
    ],
)
def test_a_wrong_word_is_refused_with_its_place(text: str, place: int, sentence: str) -> None:
    """The error names the character where the word begins, and what is wrong; the hint is a filter that works."""
    with pytest.raises(BadRequest) as refused:
        parse(text, targets=TARGETS, regions=REGIONS)
    assert str(refused.value).startswith(f"filter, character {place}: ")
    assert sentence in str(refused.value)
    assert "ttft>500 outcome:timed_out region:eu-*" in refused.value.hint


@pytest.mark.parametrize("text", ["ttft>1 " * 21, "error:" + "a" * 1_000])
def test_a_long_filter_is_refused(text: str) -> None:
    """There is a limit of words and one of characters."""
    with pytest.raises(BadRequest, match="at most 1000 characters and 20 words"):
        parse(text, targets=TARGETS, regions=REGIONS)
