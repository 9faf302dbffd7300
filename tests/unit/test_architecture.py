"""ARCHITECTURE.md names files and functions; all of them exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
HOPS = re.findall(r"^\| [a-z ]* ?\| `([^`]+)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
ROOMS = "agent|clients|common|collector|deploy|docs|migrations|proto|tests"


def definitions(path: Path) -> set[str]:
    """The functions and classes of a module, those of classes with the name of their class before a dot."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


def test_the_path_of_a_sample_is_described() -> None:
    """The table has a line for each hop from the socket to a consumer."""
    assert len(HOPS) >= 20


@pytest.mark.parametrize(("file", "function"), HOPS)
def test_each_hop_exists(file: str, function: str) -> None:
    """The function of a hop is defined in its file."""
    assert function in definitions(ROOT / file)


@pytest.mark.parametrize("file", sorted(set(re.findall(rf"`((?:{ROOMS})/[^`]*)`", PAGE))))
def test_each_file_exists(file: str) -> None:
    """Every path that the page names is there."""
    assert (ROOT / file).exists()
