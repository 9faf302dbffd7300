"""Files of the live page: complete, small, and without anything that its policy would refuse."""

import gzip
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from isochrone_collector.http_api.page import DOCUMENT, POLICY, PageFile, read_files

MAX_KIB = 300
IMPORT = re.compile(r'^import [^;]*?from "([^"]+)";', re.MULTILINE)
MARKUP = re.compile(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function")


@pytest.fixture(scope="module")
def files() -> Mapping[str, PageFile]:
    """The files by their paths."""
    return read_files()


def test_every_reference_is_a_file(files: Mapping[str, PageFile]) -> None:
    """What the document and the modules load is there."""
    document = files[DOCUMENT].content.decode()
    linked = re.findall(r'(?:href|src)="(/[^"]+)"', document)
    assert linked
    assert set(linked) <= files.keys()
    for path in (path for path in files if path.endswith(".js")):
        for imported in re.findall(
            r'^import [^;]*?from "([^"]+)";', files[path].content.decode(), re.MULTILINE | re.DOTALL
        ):
            assert normal(PurePosixPath(path).parent / imported) in files, (path, imported)


def normal(path: PurePosixPath) -> str:
    """Return the path without `.` and `..`."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return str(PurePosixPath(*parts))


def test_every_module_is_loaded_at_once(files: Mapping[str, PageFile]) -> None:
    """The document links each module, so that none waits for the one that imports it."""
    document = files[DOCUMENT].content.decode()
    for path in files:
        assert not path.endswith(".js") or f'<link rel="modulepreload" href="{path}">' in document


def test_nothing_of_another_address_is_loaded(files: Mapping[str, PageFile]) -> None:
    """No file has an address, except the names of XML namespaces; the policy allows this collector only."""
    for path, file in files.items():
        addresses = set(re.findall(rb"https?://[^\s\"'`)]+", file.content)) - {b"http://www.w3.org/2000/svg"}
        assert addresses == set(), path
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY


def test_values_never_become_markup(files: Mapping[str, PageFile]) -> None:
    """No module makes elements from text, and the document has no inline script or style."""
    for path, file in files.items():
        if path.endswith(".js"):
            found = re.search(
                rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", file.content
            )
            assert found is None, path
    assert re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", files[DOCUMENT].content.decode()) is None


def test_the_page_is_small(files: Mapping[str, PageFile]) -> None:
    """All files together are below the limit, compressed."""
    assert sum(len(file.compressed) for file in files.values()) <= MAX_KIB * 1024
    assert all(gzip.decompress(file.compressed) == file.content for file in files.values())


def test_files_are_kept_for_ever_and_the_document_is_checked(files: Mapping[str, PageFile]) -> None:
    """The folder of the files has a digest in its name, which the document names."""
    assert files[DOCUMENT].headers["Cache-Control"] == "no-cache"
    others = [file for path, file in files.items() if path != DOCUMENT]
    assert {file.headers["Cache-Control"] for file in others} == {"public, max-age=31536000, immutable"}
    assert {path.split("/")[2] for path in files if path != DOCUMENT} == {next(iter(files)).split("/")[2]}
