"""The documentation site builds without a warning, and loads nothing from other addresses."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="needs MkDocs, the extra `docs`")

from tools import docs_site

ROOT = Path(__file__).parents[3]
# Elements that a browser loads by itself.
LOADED = re.compile(r"<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href)=\"(?:https?:)?//[^\"]+", re.DOTALL)

STYLED = re.compile(r"url\([\"']?(?:https?:)?//[^)]+")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


def test_every_page_is_there(site: Path) -> None:
    """Each page of docs/ and of the root is in the site, and each linked file outside, unchanged."""
    pages = {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")}
    assert docs_site.own_pages() | {*docs_site.MOVED.values(), "reference/configuration.md"} <= pages
    for path in docs_site.linked_files():
        assert (site / "files" / path).read_bytes() == (ROOT / path).read_bytes()
    assert "files/action.yml" in (site / "github-action.html").read_text()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """No page and no style sheet names a script, font or image at another address."""
    loaded = {match[0] for path in site.rglob("*.html") for match in LOADED.finditer(path.read_text())}
    styles = {
        found for path in site.rglob("*.css") for found in re.findall(r"url\([\"']?(?:https?:)?//", path.read_text())
    }
    assert (loaded, styles) == (set(), set())


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("README.md", "[a](docs/asking.md#the-numbers)", "[a](asking.md#the-numbers)"),
        ("README.md", "[a](CONTRIBUTING.md)", "[a](contributing.md)"),
        ("CONTRIBUTING.md", "[a](docs/failures.md)", "[a](failures.md)"),
        ("docs/deploy.md", "[a](../deploy/Dockerfile)", "[a](files/deploy/Dockerfile)"),
        ("docs/deploy.md", "[a](../README.md)", "[a](index.md)"),
        ("docs/deploy.md", "[a](https://example.org/x) [b](#here) [c](agent.md)", None),
        ("docs/deploy.md", "```text\n[a](../README.md)\n```", None),
    ],
)
def test_links_lead_to_the_places_of_the_site(path: str, text: str, expected: str | None) -> None:
    """A link to a file of the repository becomes one to its place in the site; others, and code, stay."""
    assert docs_site.relinked(text, path) == (text if expected is None else expected)
