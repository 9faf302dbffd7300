"""The report in a real browser: no requests, no errors, no overflow, and accessible to everyone."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fix_browser import Browser
from fix_observatory import DIFFERENTIALS, FakeObservatory
from isochrone_client.cli import cli

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
def page(observatory: FakeObservatory, tmp_path: Path) -> Path:
    """A report with all sections, and with hostile names and reasons."""
    hostile = replace(DIFFERENTIALS[2], target=HOSTILE, model=HOSTILE, reason=HOSTILE)
    observatory.differentials = (*DIFFERENTIALS[:2], hostile)
    observatory.standings = tuple(replace(row, model=HOSTILE) for row in observatory.standings)
    file = tmp_path / "report.html"
    done = CliRunner().invoke(cli, ["report", "--html", str(file)], env={"ISOCHRONE_COLLECTOR": observatory.address})
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
def test_it_fits(browser: Browser, page: Path, width: int) -> None:
    """The page is not wider than the window; wide tables scroll and are reachable by keyboard."""
    browser.open(page, width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    scrolling = "[...document.querySelectorAll('*')].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)"
    own = f"{scrolling}.filter((e) => getComputedStyle(e).overflowX === 'auto').every((e) => e.tabIndex === 0)"
    assert browser.evaluate(own) is True


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(browser: Browser, page: Path, dark: bool) -> None:  # noqa: FBT001  # a case of the table
    """In light and dark mode each text has a contrast of at least 4.5 with its background."""
    browser.open(page, width=1280, dark=dark)
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)"
    )
    assert browser.evaluate(CONTRAST) == []


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
