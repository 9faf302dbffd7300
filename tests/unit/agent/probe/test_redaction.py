"""Secrets are taken out of sentences, also in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.probe.redaction import RUN_CHARS, printable, redact

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
    """Eight characters of the key in a row are never left standing; fewer tell nothing."""
    assert redact(text, KEY) == redacted


@pytest.mark.parametrize(
    ("text", "secret", "redacted"), [("key none", "none", "key ***"), ("key no", "none", "key no"), ("key", "", "key")]
)
def test_short_secrets_are_masked_whole(text: str, secret: str, redacted: str) -> None:
    """A key shorter than a run is masked where all of it stands, and no key masks nothing."""
    assert redact(text, secret) == redacted


@given(st.text("ab*", max_size=60), st.text("ab", min_size=RUN_CHARS, max_size=20))
def test_no_run_survives(text: str, secret: str) -> None:
    """Whatever the text: no eight characters in a row of the result are the secret's."""
    left = redact(text, secret)
    assert not any(secret[at : at + RUN_CHARS] in left for at in range(len(secret) - RUN_CHARS + 1))


@pytest.mark.parametrize(
    ("text", "kept"), [("a\x00b", "a?b"), ("\ud800", "?"), ("a\x1b[31mb", "a?[31mb"), ("é 北 …", "é 北 …")]
)
def test_what_cannot_be_shown_is_replaced(text: str, kept: str) -> None:
    """Control characters and halves of code points become question marks; everything else stays."""
    assert printable(text) == kept
