"""Provider texts in a sample contain no part of the key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.probe.prober import printable
from isochrone_wire.text import MASKED_RUN_CHARS, redact

KEY = "sk-abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"bad key {KEY}.", "bad key ***."),
        (f"bad key {KEY}", "bad key ***"),
        (f"bad key {KEY[:20]}", "bad key ***"),
        (f"{KEY[-10:]} and {KEY[3:15]}", "*** and ***"),
        ("bad key sk-abcd…", "bad key sk-abcd…"),
        (f"{KEY}{KEY}", "***"),
        ("nothing of it", "nothing of it"),
        ("", ""),
    ],
)
def test_long_runs_are_masked(text: str, redacted: str) -> None:
    """Eight or more consecutive characters of the key are masked; shorter runs are not."""
    assert redact(text, KEY) == redacted


@pytest.mark.parametrize(
    ("text", "secret", "redacted"), [("key none", "none", "key ***"), ("key no", "none", "key no"), ("key", "", "key")]
)
def test_short_secrets_are_masked_whole(text: str, secret: str, redacted: str) -> None:
    """A key shorter than a run is masked where it occurs completely; an empty key masks nothing."""
    assert redact(text, secret) == redacted


@given(st.text("ab*", max_size=60), st.text("ab", min_size=MASKED_RUN_CHARS, max_size=20))
def test_no_run_survives(text: str, secret: str) -> None:
    """No eight consecutive characters of the result occur in the secret, for any text."""
    left = redact(text, secret)
    assert not any(secret[at : at + MASKED_RUN_CHARS] in left for at in range(len(secret) - MASKED_RUN_CHARS + 1))


@pytest.mark.parametrize(
    ("text", "kept"), [("a\x00b", "a?b"), ("\ud800", "?"), ("a\x1b[31mb", "a?[31mb"), ("é 北 …", "é 北 …")]
)
def test_unprintable_characters_are_replaced(text: str, kept: str) -> None:
    """Control characters and lone surrogates become question marks; everything else is unchanged."""
    assert printable(text) == kept
