"""Names: distinct for readers, and helpful when there is no such thing."""

import pytest

from isochrone_collector.names import display_names, matching, unknown


def test_an_unknown_name_is_told_with_what_is_known() -> None:
    """The sentence quotes the name, lists the known ones and guesses what was meant."""
    assert (
        unknown("region", "us-eat-2", ["us-east-2", "eu-west-1"])
        == "unknown region 'us-eat-2'; known: eu-west-1, us-east-2; did you mean 'us-east-2'?"
    )
    assert unknown("region", "x", []) == "unknown region 'x'; known: none yet"


def test_long_lists_are_cut() -> None:
    """A thousand targets do not become a sentence of a thousand names."""
    sentence = unknown("target", "zzz", [f"provider/model-{n:04}" for n in range(1_000)])
    assert "and 980 more" in sentence
    assert len(sentence) < 600


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("openai/gpt-5", ["openai/gpt-5"]),
        ("openai/*", ["openai/gpt-5", "openai/o4"]),
        ("*", ["openai/gpt-5", "openai/o4", "x/odd[1]"]),
        ("OPENAI/*", []),
        ("x/odd[1]", ["x/odd[1]"]),
        ("openai/?4", ["openai/o4"]),
        ("gpt-5", []),
        ("gpt*", ["openai/gpt-5"]),
        ("*5", ["openai/gpt-5"]),
    ],
)
def test_patterns(pattern: str, found: list[str]) -> None:
    """Patterns are shell-style over the name or what comes after the provider, tell capitals apart, and a name matches
    itself.
    """
    assert matching(pattern, ["openai/gpt-5", "openai/o4", "x/odd[1]"]) == found


def test_a_series_that_was_replaced_keeps_a_name_of_its_own() -> None:
    """The newest target of a name has it bare; the ones before are told apart by their ids, for ever the same."""
    names = display_names({0xABCDEF: ("sim/a", 1), 0x1000002: ("sim/a", 3), 5: ("sim/b", 1)})
    assert names == {0xABCDEF: "sim/a~abcdef", 0x1000002: "sim/a", 5: "sim/b"}
