"""Text for people: guesses at names, and text that cannot control a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_wire.text import aligned, did_you_mean, first_of, is_http_url, nearest, printable, same_name, unknown

NAMES = ["moonshot/kimi-k2.5", "openai/gpt-5-mini", "deepseek/deepseek-v4-flash"]


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("kimi-k25", NAMES, "moonshot/kimi-k2.5"),
        ("gpt5-mini", NAMES, "openai/gpt-5-mini"),
        ("OpenAI/GPT-5", NAMES, "openai/gpt-5-mini"),
        ("us-eat-2", ["us-east-2", "us-west-2"], "us-east-2"),
        ("abc", ["xyz"], None),
        ("us-eat-2", ["us-east-2", *map(str, range(2_000))], None),
    ],
)
def test_the_nearest_name_is_offered(name: str, known: list[str], meant: str | None) -> None:
    """A short name is compared with last parts; nothing that is not alike is guessed, nor sought among thousands."""
    assert nearest(name, known) == meant
    assert did_you_mean(name, known) == (f"; did you mean {meant!r}?" if meant else "")


@pytest.mark.parametrize(
    ("name", "found"),
    [("tokens-per-second", "tokens_per_second"), ("TTFT", "ttft"), ("ttft_", None), ("tokens per second", None)],
)
def test_spellings_of_one_name(name: str, found: str | None) -> None:
    """Case, and `-` in place of `_`, make no other name; anything else does."""
    assert same_name(name, ["ttft", "tokens_per_second"]) == found


@pytest.mark.parametrize(
    ("most", "shown"), [(1, "a and 2 more"), (2, "a, b and 1 more"), (3, "a, b, c"), (9, "a, b, c")]
)
def test_the_first_names_and_the_number_of_the_others(most: int, shown: str) -> None:
    """A long list is shortened to its beginning, and states how many names were left out."""
    assert first_of(["a", "b", "c"], most) == shown
    assert first_of([], most) == ""


def test_columns_are_aligned() -> None:
    """Each column is as wide as its widest cell, and no line ends with a space."""
    rows = [("name", "role"), ("a", "an operator"), ("longest", "")]
    assert aligned(rows).splitlines() == ["name     role", "a        an operator", "longest"]


@given(st.text())
def test_nothing_can_steer_the_terminal(text: str) -> None:
    """No escape, newline or direction mark reaches the screen; letters of any script stay as they are."""
    assert printable(text).isprintable()
    assert printable("Qwen 千问, naïve") == "Qwen 千问, naïve"


def test_an_unknown_name_is_told_with_what_is_known() -> None:
    """The sentence quotes the name, lists the first known ones and guesses what was meant."""
    known = ["us-east-2", "eu-west-1"]
    guess = "unknown region 'us-eat-2'; known: eu-west-1, us-east-2; did you mean 'us-east-2'?"
    assert unknown("region", "us-eat-2", known) == guess
    assert unknown("region", "x", []) == "unknown region 'x'; known: none yet"
    sentence = unknown("target", "zzz", [f"provider/model-{n:04}" for n in range(1_000)])
    assert "and 980 more" in sentence
    assert len(sentence) < 600


@pytest.mark.parametrize(
    ("text", "is_usable"),
    [
        ("https://api.example/v1", True),
        ("http://[::1]:81", True),
        ("ftp://api.example", False),
        ("https://", False),
        ("https://api.example:0", False),
        ("https://api.example:70000", False),
        ("http://[::1", False),
    ],
)
def test_urls_of_http(text: str, *, is_usable: bool) -> None:
    """They have one of two schemes, a host, and a port from 1 to 65535 if any."""
    assert is_http_url(text) is is_usable
