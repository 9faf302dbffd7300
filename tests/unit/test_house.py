"""The house rules that a reader would otherwise have to check by hand."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ("*.py", "*.toml", "*.txt", "*.md", "*.yaml", "*.yml", "*.sql", "*.proto", "Makefile", "run", "*.sh", "*.json")
REGISTRY = re.compile(r"""^\s*--(extra-)?index-url|"resolved"\s*:\s*"http|^\s*registry\s*=\s*["']?http""", re.MULTILINE)


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (p for p in (ROOT / folder).rglob("*.py") if "_pb2" not in p.name)


def texts() -> list[Path]:
    skipped = {".venv", ".git", ".cache", ".demo", "__pycache__", "node_modules", ".hypothesis", "build"}
    found = (path for pattern in TEXTS for path in ROOT.rglob(pattern))
    return sorted(path for path in found if not skipped & set(path.relative_to(ROOT).parts))


def test_every_test_has_a_sentence() -> None:
    """A test without a docstring does not say which law it defends."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources("tests")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_nothing_of_this_machine_is_written_down() -> None:
    """No file names this checkout's folder, a folder beside it, or an option or key for a package registry."""
    outside = "../" + "shared"
    leaks = [
        str(path.relative_to(ROOT))
        for path in texts()
        if str(ROOT) in (text := path.read_text()) or outside in text or REGISTRY.search(text)
    ]
    assert leaks == []


def test_constraints_are_versions_only() -> None:
    """Each line of constraints.txt is `name==version`."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []


def test_a_connection_that_ends_lets_calls_end() -> None:
    """When a collector ends a connection for its age, a call in flight has longer than an agent waits for it."""
    from isochrone_agent import collector_client
    from isochrone_common import channel

    assert collector_client.CALL_SECONDS * 1000 < channel.CONNECTION_GRACE_MS < channel.MAX_CONNECTION_AGE_MS


def imports_between_packages() -> set[tuple[str, str]]:
    """Pairs of packages, the importing one first; a package's own modules and its parent's count as one place."""
    roots = [ROOT / room for room in ("proto", "common", "agent", "collector", "migrations", "deploy/simulator")]
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts): path
        for root in roots
        for path in root.rglob("*.py")
        if "_pb2" not in path.name
    }
    pairs = set()
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("isochrone_"):
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    pairs.add((_package(name), _package(full if full in files else node.module)))
    return {(a, b) for a, b in pairs if a != b and a.count(".") and b.count(".")}


def _package(module: str) -> str:
    return module.rpartition(".")[0]


def test_no_two_packages_import_each_other() -> None:
    """Imports between packages go one way, so that one of two can be read without the other."""
    pairs = imports_between_packages()
    assert sorted((a, b) for a, b in pairs if (b, a) in pairs and a < b) == []
