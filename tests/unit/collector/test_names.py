"""Names: patterns, and distinct for readers."""

import pytest

from isochrone_collector.names import EVERY_NAME, NameFilter, display_names, matching


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


@pytest.mark.parametrize(
    ("allowed", "denied", "found"),
    [
        ((), (), {"openai/gpt-5", "openai/o4", "x/odd[1]"}),
        (("openai/*",), (), {"openai/gpt-5", "openai/o4"}),
        (("o4*", "x/odd[1]"), (), {"openai/o4", "x/odd[1]"}),
        ((), ("openai/*",), {"x/odd[1]"}),
        (("openai/*",), ("gpt*",), {"openai/o4"}),
        (("nothing",), (), set()),
        ((), ("*",), set()),
    ],
)
def test_a_filter_denies_after_it_allows(allowed: tuple[str, ...], denied: tuple[str, ...], found: set[str]) -> None:
    """A denied name does not pass, also if it is allowed; names that no pattern allows pass only if there is none."""
    known = ["openai/gpt-5", "openai/o4", "x/odd[1]"]
    assert NameFilter(allowed=allowed, denied=denied).select(known) == found
    assert EVERY_NAME.select(known) == set(known)


def test_a_series_that_was_replaced_keeps_a_name_of_its_own() -> None:
    """The newest target of a name has it bare; the ones before are told apart by their ids, for ever the same."""
    names = display_names({0xABCDEF: ("sim/a", 1), 0x1000002: ("sim/a", 3), 5: ("sim/b", 1)})
    assert names == {0xABCDEF: "sim/a~abcdef", 0x1000002: "sim/a", 5: "sim/b"}
