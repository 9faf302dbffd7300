"""The hook of MkDocs that completes the documentation site: `make docs`.

The home page is the README. The other pages of the root are pages, too, and the reference is made from the code. A link
from a page to another file of the repository leads to a copy of that file.
"""

import logging
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
# Places of the pages outside docs/ in the site, by their path in the repository.
MOVED = {"README.md": "index.md"} | {
    f"{name}.md": f"{name.lower()}.md" for name in ("ARCHITECTURE", "AGENTS", "CONTRIBUTING", "CHANGELOG")
}
_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)")
_FENCES = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def on_startup(**_more: Any) -> None:  # the arguments of an event of MkDocs
    """Report problems of documents as warnings, which a strict build fails on, and no other messages of libraries."""
    logging.getLogger("markdown").setLevel(logging.WARNING)


def on_files(files: Files, *, config: Any) -> Files:  # the type depends on the version of MkDocs
    from tools import docs_reference  # imports all programs, which only a build needs

    for path, uri in MOVED.items():
        files.append(File.generated(config, uri, content=relinked((ROOT / path).read_text(), path)))
    for uri, text in docs_reference.pages().items():
        files.append(File.generated(config, uri, content=text))
    for path in linked_files():
        files.append(File.generated(config, f"files/{path}", content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_more: Any) -> str:  # as above
    """Let the links of a page of docs/ lead to the places of their files in the site."""
    is_own = page.file.src_uri in own_pages()
    return relinked(markdown, f"docs/{page.file.src_uri}") if is_own else markdown


def own_pages() -> set[str]:
    return {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}


def relinked(markdown: str, path: str) -> str:
    """The text of the page at a path of the repository with its links as in the site; code is left as it is."""
    parts = _FENCES.split(markdown)
    parts[::2] = (_LINK.sub(lambda link: _place(link[1], path), part) for part in parts[::2])
    return "".join(parts)


def linked_files() -> list[str]:
    """The files outside docs/ that pages link to, by their path in the repository."""
    return sorted({target for target in _targets() if not (target in MOVED or target.startswith("docs/"))})


def _targets() -> Iterator[str]:
    for path in (*MOVED, *(f"docs/{uri}" for uri in own_pages())):
        for part in _FENCES.split((ROOT / path).read_text())[::2]:
            for link in _LINK.finditer(part):
                target = _target(link[1], path)
                if (ROOT / target).is_file():
                    yield target


def _target(link: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _place(link: str, path: str) -> str:
    """The link from the page's place in the site to that of the file."""
    target = _target(link, path)
    uri = MOVED.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else f"files/{target}")
    here = posixpath.dirname(MOVED.get(path, path.removeprefix("docs/")))
    return posixpath.relpath(uri, here or ".")


if __name__ == "__main__":
    sys.exit("a hook of MkDocs: run `make docs`")
