"""Text for people: guesses at names, and text that cannot control a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from isochrone_wire.text import did_you_mean, nearest, printable


def test_nothing_alike_is_not_guessed() -> None:
    """A guess that is not alike would mislead."""
    assert nearest("abc", ["xyz"]) is None
    assert did_you_mean("abc", ["xyz"]) == ""


def test_the_nearest_name_is_offered() -> None:
    """Of several similar names the most similar one is offered."""
    assert did_you_mean("us-eat-2", ["us-east-2", "us-west-2"]) == "; did you mean 'us-east-2'?"


@given(st.text())
def test_nothing_can_steer_the_terminal(text: str) -> None:
    """No escape, newline or direction mark of text from elsewhere reaches the screen."""
    assert printable(text).isprintable()


def test_plain_text_is_left_alone() -> None:
    """Letters of any script stay as they are."""
    assert printable("Qwen 千问, naïve") == "Qwen 千问, naïve"
