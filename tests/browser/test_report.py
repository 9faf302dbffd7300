"""The report in a real browser: no requests, no errors, no overflow, and accessible to everyone."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fixtures.browser import Browser
from fixtures.fake_collector import DIFFERENTIALS
from fixtures.routes import FakeRoutes
from isochrone_client.cli import cli

# Elements with an edge beyond the window, or with content that has to be scrolled sideways; drawings may touch it.
BEYOND = """
[...document.body.querySelectorAll('*')].filter((e) => e.clientWidth > 1 && !e.closest('svg') && !e.closest('thead'))
  .filter((e) => e.getBoundingClientRect().right > WIDTH + 0.5 || e.getBoundingClientRect().left < -0.5
    || e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 60))
"""
HOSTILE = '"><img src="http://192.0.2.1/x" onerror="document.title=1"><script>document.title=2</script>'
WIDTHS = (1280, 390)
# Texts whose contrast with the background, by the formula of WCAG 2.2, is below 4.5.
CONTRAST = """
(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).slice(0, 3).map((c) => c / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let place = element; place; place = place.parentElement) {
      const colour = getComputedStyle(place).backgroundColor;
      if (numbers(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const poor = [];
  for (const element of document.body.querySelectorAll('*')) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(element);
    const ink = element.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(element.textContent.slice(0, 40) + ' ' + ink);
  }
  return poor;
})()
"""


@pytest.fixture
def page(routing: FakeRoutes, tmp_path: Path) -> Path:
    """A report with all sections, and with hostile names and reasons."""
    observatory = routing.observatory
    hostile = replace(DIFFERENTIALS[2], target=HOSTILE, model=HOSTILE, reason=HOSTILE)
    observatory.differentials = (*DIFFERENTIALS[:2], hostile)
    observatory.standings = tuple(replace(row, model=HOSTILE, provider=HOSTILE) for row in observatory.standings)
    failing = replace(observatory.series.series[0], target=HOSTILE, region=HOSTILE)
    observatory.series = replace(observatory.series, series=(*observatory.series.series, failing))
    routing.tables = (replace(routing.tables[0], sentence=HOSTILE), *routing.tables[1:])
    return report(routing, tmp_path / "report.html")


@pytest.fixture
def crowded(routing: FakeRoutes, tmp_path: Path) -> Path:
    """A report with thirty regions."""
    observatory = routing.observatory
    rows = [replace(row, region=f"region-number-{n}") for n in range(30) for row in DIFFERENTIALS]
    lines = [replace(line, region=f"region-number-{n}") for n in range(30) for line in observatory.series.series[:2]]
    observatory.differentials = tuple(rows)
    observatory.series = replace(observatory.series, series=tuple(lines))
    return report(routing, tmp_path / "crowded.html")


@pytest.fixture
def empty(routing: FakeRoutes, tmp_path: Path) -> Path:
    """A report of a window without samples."""
    observatory = routing.observatory
    observatory.differentials = observatory.standings = observatory.coverage = observatory.region_costs = ()
    observatory.tiers = observatory.latency_budgets = ()
    observatory.series = replace(observatory.series, series=())
    return report(routing, tmp_path / "empty.html")


def report(routing: FakeRoutes, file: Path) -> Path:
    """Write a report with `isochrone report`."""
    done = CliRunner().invoke(cli, ["report", "--file", str(file)], env={"ISOCHRONE_COLLECTOR": routing.address})
    assert done.exit_code == 0, done.output
    return file


@pytest.mark.parametrize("width", WIDTHS)
def test_it_makes_no_requests_and_no_errors(browser: Browser, page: Path, width: int) -> None:
    """Only the file itself is requested, the console stays empty, and no hostile text becomes an element."""
    browser.open(page, width=width)
    time.sleep(0.2)
    requested = [event["request"]["url"] for event in browser.seen("Network.requestWillBeSent")]
    assert [url for url in requested if not url.startswith("data:")] == [page.as_uri()]
    assert browser.seen("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    assert browser.evaluate("document.querySelectorAll('img, script, iframe, object').length") == 0
    assert browser.evaluate("document.title").startswith("LLM latency by region")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["page", "crowded", "empty"])
def test_nothing_is_cut_off(browser: Browser, request: pytest.FixtureRequest, name: str, width: int) -> None:
    """No element reaches beyond the window, and none has to be scrolled sideways."""
    browser.open(request.getfixturevalue(name), width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(BEYOND.replace("WIDTH", str(width))) == []


def test_on_a_medium_screen_wide_tables_scroll(browser: Browser, page: Path) -> None:
    """Between phone and desktop the page fits, and tables that scroll are reachable by keyboard."""
    browser.open(page, width=920)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 920
    scrolling = "[...document.querySelectorAll('*')].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)"
    own = f"{scrolling}.filter((e) => getComputedStyle(e).overflowX === 'auto').every((e) => e.tabIndex === 0)"
    assert browser.evaluate(own) is True


def test_on_a_phone_every_value_has_its_label(browser: Browser, page: Path) -> None:
    """Each value, if headings are hidden, is preceded by the heading of its column."""
    browser.open(page, width=390)
    labels = "[...document.querySelectorAll('td:not(.drawn)')].map((e) => getComputedStyle(e, '::before').content)"
    assert browser.evaluate(f"{labels}.every((label) => label.length > 2 && label !== 'none')") is True
    assert browser.evaluate("document.querySelectorAll('[role=table] [role=row] [role=rowheader]').length") > 0


def test_the_verdict_comes_first(browser: Browser, page: Path, empty: Path) -> None:
    """The first paragraph says what is slower where; without samples, what is missing."""
    browser.open(page, width=390)
    first = "document.querySelector('h1 + p.verdict')"
    assert "openai/gpt-5-mini by 191 ms" in browser.evaluate(f"{first}.textContent")
    assert browser.evaluate(f"{first}.getBoundingClientRect().bottom") < 844
    browser.open(empty, width=390)
    assert browser.evaluate(f"{first}.textContent").startswith("No samples between")


def test_the_charts_show_lines_and_incidents(browser: Browser, page: Path) -> None:
    """Each target has a chart with a line per region, and the mark of an incident is at its instant."""
    browser.open(page, width=1280)
    assert browser.evaluate("document.querySelectorAll('figure').length") == 3
    assert browser.evaluate("document.querySelectorAll('figure path.line').length") == 4
    heights = "[...document.querySelectorAll('figure path.line')].map((e) => e.getBoundingClientRect().width)"
    assert all(width > 200 for width in browser.evaluate(heights))
    level = "[...document.querySelectorAll('figure')].find((e) => e.textContent.includes('is slower by 80 ms'))"
    mark, plot = f"{level}.querySelectorAll('.began')", f"{level}.querySelector('.plot')"
    place = (
        f"(([e, p]) => (e.left - p.left) / p.width)([[...{mark}].at(-1), {plot}].map((e) => e.getBoundingClientRect()))"
    )
    assert browser.evaluate(place) == pytest.approx(22 / 24, abs=0.02)


def test_the_heat_table_has_every_target_and_region(browser: Browser, page: Path) -> None:
    """One table has the median and the difference of each target from each region, in the colour of the decision."""
    browser.open(page, width=1280)
    cells = browser.evaluate(
        "[...document.querySelectorAll('.heat tbody tr')].map((row) => [...row.children].map((e) => e.textContent))"
    )
    assert ["openai/gpt-5-mini", "320", "513+191"] in [row[:3] for row in cells]
    slow = browser.evaluate("getComputedStyle(document.querySelector('.worse3')).backgroundColor")
    assert slow == "rgb(240, 163, 168)"


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(browser: Browser, page: Path, dark: bool) -> None:  # noqa: FBT001  # a case of the table
    """Each text has, in light and dark mode, a contrast of at least 4.5 with its background."""
    browser.open(page, width=1280, dark=dark)
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)"
    )
    assert browser.evaluate(CONTRAST) == []


def test_no_heading_is_broken_inside_a_word(browser: Browser, page: Path) -> None:
    """A heading of a column is at least as wide as its longest word."""
    browser.open(page, width=1280)
    narrow = "[...document.querySelectorAll('thead th')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
    assert browser.evaluate(f"{narrow}.map((e) => e.textContent)") == []
    breaking = "[...document.querySelectorAll('thead th:not(.name)')].map((e) => getComputedStyle(e).overflowWrap)"
    assert set(browser.evaluate(breaking)) == {"normal"}


def test_it_has_a_structure(browser: Browser, page: Path) -> None:
    """One h1, an h2 for each section, and tables with captions, column headers and row headers."""
    browser.open(page, width=1280)
    count: Callable[[str], Any] = lambda selector: browser.evaluate(f"document.querySelectorAll('{selector}').length")  # noqa: E731  # one line says it
    assert count("h1") == 1
    assert count("section") == count("section > h2") == count("nav li") >= 8
    assert count("table") == count("table > caption") >= 8
    rows = browser.evaluate("[...document.querySelectorAll('tbody tr')].every((r) => r.querySelector('th[scope=row]'))")
    assert rows is True
    assert count("thead th:not([scope=col])") == 0
    assert browser.evaluate("document.documentElement.lang") == "en"
    broken = "[...document.querySelectorAll('nav a')].filter((a) => !document.querySelector(a.getAttribute('href')))"
    assert browser.evaluate(f"{broken}.length") == 0


def test_it_can_be_printed(browser: Browser, page: Path) -> None:
    """The page can be printed, and nothing is cut off at the right."""
    browser.open(page, width=1280)
    printed = browser.ask("Page.printToPDF", preferCSSPageSize=True, transferMode="ReturnAsStream")
    assert printed["stream"]
    browser.ask("Emulation.setEmulatedMedia", media="print")
    browser.ask("Emulation.setDeviceMetricsOverride", width=1030, height=700, deviceScaleFactor=1, mobile=False)
    try:
        assert browser.evaluate("document.documentElement.scrollWidth") <= 1030
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")
