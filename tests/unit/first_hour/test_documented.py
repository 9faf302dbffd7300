"""Commands of the pages: every one that a newcomer would copy is found."""

from pathlib import Path

from first_hour.documented import commands, examples, is_endless, questions, subcommands

ROOT = Path(__file__).resolve().parents[3]
PAGE = """\
```text
isochrone is not run here
```

```console
$ pip install .
$ isochrone-collector serve          # a comment
$ isochrone diff --against eu \\
    --window 1h
```
"""


def test_commands_are_those_of_shell_blocks() -> None:
    """Lines of a shell block that run a program are commands; comments, other programs and other blocks are not."""
    assert [" ".join(line.split()) for line in commands(PAGE)] == [
        "isochrone-collector serve",
        "isochrone diff --against eu --window 1h",
    ]


def test_the_pages_have_commands() -> None:
    """docs/asking.md has a dozen questions, none of which sets anything up, and the README leads to a diff."""
    found = questions(ROOT)
    assert len(found) >= 12
    assert {"isochrone targets", "isochrone routes watch"} <= set(found)
    assert not [line for line in found if " join " in line or " context " in line]
    assert any(line.startswith("isochrone diff") for line in commands((ROOT / "README.md").read_text()))


def test_help_names_commands_and_examples() -> None:
    """The names below "Commands:" and the indented lines that begin with `isochrone` are found."""
    text = "Usage: isochrone\n\nCommands:\n  diff  Compare.\n  join  Join.\n\nExample:\n  isochrone diff --window 1h\n"
    assert subcommands(text) == ["diff"]
    assert examples(text) == ["isochrone diff --window 1h"]


def test_endless_commands_are_known() -> None:
    """A command that follows or watches runs until Ctrl-C."""
    assert is_endless("isochrone samples --follow")
    assert not is_endless("isochrone samples")
