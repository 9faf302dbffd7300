"""YAML with lines: each part has its line, and no text is harmful."""

import pytest

from isochrone_wire.plan_document import yaml_source

TEXT = """\
# a comment
a: 1
list:
  - x: 1
    y: 2
  -
    x: 3
inline: {p: 1,
  q: 2}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 2),
        (("a",), 2),
        (("list",), 3),
        (("list", 0), 4),
        (("list", 0, "y"), 5),
        (("list", 1), 7),
        (("inline", "p"), 8),
        (("inline", "q"), 9),
        (("inline", "r"), 8),
        (("nowhere", 7), 2),
    ],
)
def test_lines(path: yaml_source.Path, line: int) -> None:
    """A part has its own line, and a missing part has the line of its parent."""
    assert yaml_source.read(TEXT).line_of(path) == line


def test_data_is_plain() -> None:
    """The data is the same as that of a YAML parser."""
    assert yaml_source.read(TEXT).data == {"a": 1, "list": [{"x": 1, "y": 2}, {"x": 3}], "inline": {"p": 1, "q": 2}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: the document is empty"),
        ("# only a comment", "line 1: the document is empty"),
        ("a: 1\nb: [", "line 2: not YAML: "),
        ("a: 1\n b: 2", "line 2: not YAML: "),
        ("a: &x 1\nb: *x", "line 2: aliases"),
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' is already in line 1"),
        ("a: 1\n7: 2", "line 2: a key must be text: write '7' in quotes"),
        ("a: 1\nyes: 2", "line 2: a key must be text: write 'yes' in quotes"),
        ("[" * 50_000, "line 1: nested more than 12 levels deep"),
        ("a: !!python/object/apply:os.getcwd []", "line 1: not YAML: could not determine a constructor"),
        ("a: 2026-02-30", "line 1: not YAML: day is out of range"),
        ("a: \x07", "line 1: not YAML: unacceptable character"),
        ("a: " + "x" * 4_000_001, "line 1: the document is larger"),
        ("a: [" + "0," * 200_001 + "]", "line 1: the document has more than 200000 keys and values"),
        ("a: 1\n---\nb: 2", "line 2: not YAML: but found another document"),
    ],
)
def test_whatever_is_wrong_becomes_a_problem(text: str, problem: str) -> None:
    """Parsing never raises, and each problem has a line."""
    found = [str(p) for p in yaml_source.read(text).problems]
    assert [p for p in found if p.startswith(problem)], found
