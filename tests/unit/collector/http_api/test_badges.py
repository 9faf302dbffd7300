"""Badges: valid SVG with nothing but shapes and text, whatever the names are."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from isochrone_collector.http_api.page import METRICS, Badge, badge_of, unknown_badge
from isochrone_wire.queries.status import State, TargetStatus

SVG = "{http://www.w3.org/2000/svg}"
ROW = TargetStatus(
    target="alpha/m",
    provider="alpha",
    region="us-east-2",
    state=State.OK,
    success=0.99999,
    ttft_p50_us=412_400.0,
    recent_ttft_p50_us=None,
    newest_at=0,
)


def texts(badge: Badge) -> list[str]:
    """The label and the value of a badge."""
    return [element.text or "" for element in ET.fromstring(badge.content).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("change", "metric", "value"),
    [
        ({}, "state", "ok"),
        ({"state": State.FAILING}, "state", "failing"),
        ({}, "ttft", "412 ms"),
        ({"ttft_p50_us": 12_340_000.0}, "ttft", "12.3 s"),
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
