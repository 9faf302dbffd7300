"""The files of the page, and its badges."""

import gzip
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from xml.etree import ElementTree as ET

import pytest

from fixtures.node import PageModules
from isochrone_collector.http_api.page import (
    DOCUMENT,
    METRICS,
    POLICY,
    Badge,
    PageFile,
    badge_of,
    read_files,
    unknown_badge,
)
from isochrone_wire.queries.status import State, TargetStatus

MAX_KIB = 300
IMPORT = re.compile(r'^import [^;]*?from "([^"]+)";', re.MULTILINE)
MARKUP = re.compile(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function")


@pytest.fixture(scope="module")
def files() -> Mapping[str, PageFile]:
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
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return str(PurePosixPath(*parts))


def test_every_module_is_loaded_at_once(files: Mapping[str, PageFile]) -> None:
    """Each module is linked, none names another address or makes elements from text, and the policy says so."""
    document = files[DOCUMENT].content.decode()
    for path in files:
        assert not path.endswith(".js") or f'<link rel="modulepreload" href="{path}">' in document
    for path, file in files.items():
        addresses = set(re.findall(rb"https?://[^\s\"'`)]+", file.content)) - {b"http://www.w3.org/2000/svg"}
        assert addresses == set(), path
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    for path, file in files.items():
        if path.endswith(".js"):
            found = re.search(
                rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", file.content
            )
            assert found is None, path
    assert re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", files[DOCUMENT].content.decode()) is None


def test_the_page_is_small(files: Mapping[str, PageFile]) -> None:
    """All files together are below the limit, compressed, in a folder with their digest in its name."""
    assert sum(len(file.compressed) for file in files.values()) <= MAX_KIB * 1024
    assert all(gzip.decompress(file.compressed) == file.content for file in files.values())
    assert files[DOCUMENT].headers["Cache-Control"] == "no-cache"
    others = [file for path, file in files.items() if path != DOCUMENT]
    assert {file.headers["Cache-Control"] for file in others} == {"public, max-age=31536000, immutable"}
    assert {path.split("/")[2] for path in files if path != DOCUMENT} == {next(iter(files)).split("/")[2]}


def test_pure_functions(page_modules: PageModules) -> None:
    """The page's own tests pass, and its modules have the types that their comments state."""
    assert "# fail 0" in page_modules.test()
    page_modules.check_types()


SVG = "{http://www.w3.org/2000/svg}"
ROW = TargetStatus(
    target="alpha/m",
    provider="alpha",
    region="us-east-2",
    state=State.OK,
    success=0.99999,
    ttft_p50_us=412_400.0,
    newest_at=0,
)


def texts(badge: Badge) -> list[str]:
    return [element.text or "" for element in ET.fromstring(badge.content).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("change", "metric", "value"),
    [
        ({}, "state", "ok"),
        ({"state": State.FAILING}, "state", "failing"),
        ({"state": State.TOO_YOUNG}, "state", "too young"),
        ({}, "ttft", "412 ms"),
        ({"ttft_p50_us": 12_340_000.0}, "ttft", "12.3 s"),
        ({"is_early": True}, "ttft", "412? ms"),
        ({"ttft_p50_us": None}, "ttft", "\N{EN DASH}"),
        ({}, "success", "99.9 %"),
        ({"success": 1.0}, "success", "100.0 %"),
        ({"success": None}, "success", "\N{EN DASH}"),
    ],
)
def test_values(change: dict[str, object], metric: str, value: str) -> None:
    """The value is that of the status: latencies in milliseconds, shares rounded down, unknown ones a dash."""
    badge = badge_of(replace(ROW, **change), metric)  # type: ignore[arg-type]  # the cases choose the fields
    assert texts(badge) == ["alpha/m us-east-2", value]


@pytest.mark.parametrize("metric", METRICS)
def test_a_badge_has_a_title(metric: str) -> None:
    """Screen readers announce what it shows: the target, the region, the metric and its value."""
    root = ET.fromstring(badge_of(ROW, metric).content)
    title = root.findtext(f"{SVG}title") or ""
    assert title.startswith("alpha/m from us-east-2: ")
    assert (root.get("role"), root.get("aria-label")) == ("img", title)
    assert texts(badge_of(ROW, metric))[1] in title


@pytest.mark.parametrize(
    "name", ['<script>alert(1)</script>"', "a&b'c", "x\x00\x0b\x1b\ufffe\ud800y", "名" * 200, "]]>", "{width}"]
)
def test_names_are_text(name: str) -> None:
    """No name becomes an element, an attribute or invalid XML, and a long one is cut."""
    badge = badge_of(replace(ROW, target=name, region=name), "ttft")
    root = ET.fromstring(badge.content)
    usual = ET.fromstring(badge_of(ROW, "ttft").content)
    assert [element.tag for element in root.iter()] == [element.tag for element in usual.iter()]
    assert [sorted(element.attrib) for element in root.iter()] == [sorted(element.attrib) for element in usual.iter()]
    assert int(root.get("width") or "") < 1_000


def test_it_loads_nothing() -> None:
    """An image has no script, no style sheet and no address but the name of its format."""
    content = badge_of(ROW, "ttft").content.replace(b"http://www.w3.org/2000/svg", b"")
    assert [word for word in (b"http", b"href", b"script", b"style", b"import") if word in content] == []


def test_an_unknown_badge_is_neutral() -> None:
    """It has the colour of no state but stale."""
    assert texts(unknown_badge()) == ["isochrone", "unknown"]
    assert b"#57606a" in unknown_badge().content


def test_the_tag_changes_with_the_content() -> None:
    """Equal badges have equal tags."""
    assert badge_of(ROW, "ttft").etag == badge_of(replace(ROW, newest_at=9), "ttft").etag
    assert badge_of(ROW, "ttft").etag != badge_of(replace(ROW, state=State.SLOW), "ttft").etag
