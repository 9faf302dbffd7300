"""YAML with lines: each part has its line, and no text is harmful."""

import pytest

from isochrone_wire.plan_document import document, schema

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
def test_lines(path: schema.Path, line: int) -> None:
    """A part has its own line, and a missing part has the line of its parent."""
    assert document.read_yaml(TEXT).line_of(path) == line


def test_data_is_plain() -> None:
    """The data is the same as that of a YAML parser."""
    assert document.read_yaml(TEXT).data == {"a": 1, "list": [{"x": 1, "y": 2}, {"x": 3}], "inline": {"p": 1, "q": 2}}


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
        ("%TAG !a! b\n" * 1_001 + "---\na: 1", "line 1: more than 1000 lines begin with %"),
        ('a: !!int ""', "line 1: not YAML: a value does not fit its tag"),
        ("a: !!bool maybe", "line 1: not YAML: a value does not fit its tag"),
        ("a: !!timestamp soon", "line 1: not YAML: a value does not fit its tag"),
        ("? [a, b]\n: 1", "line 1: not YAML: found unhashable key"),
        ("a: 1\n" + "b" * 500 + ": 1\n" + "b" * 500 + ": 2", f"line 3: key '{'b' * 99}…' is already in line 2"),
    ],
)
def test_whatever_is_wrong_becomes_a_problem(text: str, problem: str) -> None:
    """Parsing never raises, and each problem has a line."""
    found = [str(p) for p in document.read_yaml(text).problems]
    assert [p for p in found if p.startswith(problem)], found


@pytest.mark.parametrize("text", ["a: !{} 1", "a: !!bool {}"])
def test_a_reason_repeats_little_of_the_text(text: str) -> None:
    """A tag or a value of any length is cut."""
    [problem] = document.read_yaml(text.format("x" * 100_000)).problems
    assert problem.message.startswith("not YAML: ")
    assert len(problem.message) < 3_000


@pytest.mark.parametrize("text", ["1" * 5_000, "0x" + "f" * 5_000, "1:" * 2_000 + "1", "1:" * 2_000 + "1.5"])
def test_long_numbers_are_text(text: str) -> None:
    """A number of thousands of digits is never computed: that takes quadratic time, and no message could show it."""
    assert document.read_yaml(f"a: {text}").data == {"a": text}
    assert document.read_yaml(f"? {text}\n: 1").data == {text: 1}


def test_not_every_problem_is_listed() -> None:
    """Of thousands of problems the first are listed, and all lines are known."""
    source = document.read_yaml("\n".join(f"{number}: 1" for number in range(5_000)))
    assert [problem.line for problem in source.problems] == list(range(1, document.MAX_PROBLEMS + 1))
    assert source.line_of(("4999",)) == 5_000
