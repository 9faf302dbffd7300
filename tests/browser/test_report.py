"""The report in a real browser: the live page from one file, without requests, errors or overflow."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fixtures.browser import NARROW, WIDE, Browser
from fixtures.fake_collector import DIFFERENTIALS, FakeCollector
from isochrone_client.cli import cli

HOSTILE = '"><img src="http://192.0.2.1/x" onerror="document.title=1"><script>document.title=2</script>'
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
def page(routing: FakeCollector, tmp_path: Path) -> Path:
    """A report with all sections, and with hostile names and reasons."""
    observatory = routing
    hostile = replace(DIFFERENTIALS[2], target=HOSTILE, model=HOSTILE, reason=HOSTILE)
    observatory.differentials = (*DIFFERENTIALS[:2], hostile)
    observatory.standings = tuple(replace(row, model=HOSTILE, provider=HOSTILE) for row in observatory.standings)
    failing = replace(observatory.series.series[0], target=HOSTILE, region=HOSTILE)
    observatory.series = replace(observatory.series, series=(*observatory.series.series, failing))
    routing.tables = (replace(routing.tables[0], sentence=HOSTILE), *routing.tables[1:])
    return report(routing, tmp_path / "report.html")


@pytest.fixture
def crowded(routing: FakeCollector, tmp_path: Path) -> Path:
    observatory = routing
    rows = [replace(row, region=f"region-number-{n}") for n in range(30) for row in DIFFERENTIALS]
    lines = [replace(line, region=f"region-number-{n}") for n in range(30) for line in observatory.series.series[:2]]
    observatory.differentials = tuple(rows)
    observatory.series = replace(observatory.series, series=tuple(lines))
    return report(routing, tmp_path / "crowded.html")


@pytest.fixture
def empty(routing: FakeCollector, tmp_path: Path) -> Path:
    observatory = routing
    observatory.differentials = observatory.standings = observatory.coverage = observatory.region_costs = ()
    observatory.tiers = observatory.latency_budgets = ()
    observatory.series = replace(observatory.series, series=())
    return report(routing, tmp_path / "empty.html")


def report(routing: FakeCollector, file: Path) -> Path:
    done = CliRunner().invoke(cli, ["report", "--file", str(file)], env={"ISOCHRONE_COLLECTOR": routing.address})
    assert done.exit_code == 0, done.output
    return file


def shown(browser: Browser, file: Path, view: str = "", *, width: int = 1280, dark: bool = False) -> None:
    browser.open(file, width=width, dark=dark)
    browser.until("document.querySelector('header nav a')")
    if view:
        browser.evaluate(f"location.hash = '#{view}'")
    browser.until("document.querySelector('main h1') && !document.querySelector('.waiting, [aria-busy=true]')")


def test_it_makes_no_requests_and_no_errors(browser: Browser, page: Path) -> None:
    """Only the file itself is requested, the console stays empty, and no hostile text becomes an element."""
    shown(browser, page)
    for view in browser.evaluate("[...document.querySelectorAll('nav a')].map((e) => e.hash.slice(1))"):
        shown(browser, page, view)
        assert browser.count(".failure") == 0, view
        assert browser.problems(page.as_uri()) == []
    assert browser.count("img, iframe, object") == 0
    assert browser.count("script") == 2


@pytest.mark.parametrize("name", ["page", "crowded", "empty"])
def test_nothing_is_cut_off(browser: Browser, request: pytest.FixtureRequest, name: str) -> None:
    """No element reaches beyond the window, and what scrolls sideways can be reached by the keyboard."""
    shown(browser, request.getfixturevalue(name))
    assert browser.cut_off() == []
    scrolling = "[...document.querySelectorAll('*')].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)"
    own = f"{scrolling}.filter((e) => getComputedStyle(e).overflowX === 'auto').every((e) => e.tabIndex === 0)"
    for width in (WIDE, NARROW):
        browser.resize(width)
        assert browser.evaluate(own) is True


def test_the_verdict_comes_first(browser: Browser, page: Path, empty: Path) -> None:
    """The first paragraph says what is slower where; without samples, what is missing."""
    shown(browser, page, width=390)
    first = "document.querySelector('h1 + p.summary')"
    assert "openai/gpt-5-mini by 191 ms" in browser.evaluate(f"{first}.textContent")
    assert browser.evaluate(f"{first}.getBoundingClientRect().bottom") < 844
    shown(browser, empty, width=390)
    assert browser.evaluate(f"{first}.textContent").startswith("No samples between")


MATRIX = """
[...document.querySelectorAll('.matrix tbody tr')].map((row) => [...row.children].map((e) => e.textContent))
"""


@pytest.mark.parametrize("scripts", [True, False])
def test_the_matrix_has_every_target_and_region(browser: Browser, page: Path, scripts: bool) -> None:  # noqa: FBT001  # a case of the table
    """One table has each median and difference in the colour of the decision; with scripts and without."""
    browser.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
    try:
        if scripts:
            shown(browser, page)
        else:
            browser.open(page, width=1280)
        cells = browser.evaluate(MATRIX)
        assert ["openai/gpt-5-mini", "320", "513 +191"] in [row[:3] for row in cells]
        slow = browser.evaluate("getComputedStyle(document.querySelector('td.worse3')).backgroundColor")
        assert slow == "rgb(234, 106, 113)"
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_a_target_has_its_view(browser: Browser, page: Path) -> None:
    """A link of the matrix opens the target with its values over time; what the file does not have is stated."""
    shown(browser, page)
    browser.click(".matrix tbody a[href*=gpt-5-mini]")
    browser.until("document.querySelector('main .bands')")
    assert browser.text("main h1") == "openai/gpt-5-mini"
    assert browser.count("main .median") > 0
    browser.evaluate("history.back()")
    browser.until("document.querySelector('main .matrix')")
    shown(browser, page, "/target/openai/gpt-5-mini?metric=e2e")
    assert "does not contain" in browser.text("main .failure")


def test_every_text_can_be_read(browser: Browser, page: Path) -> None:
    """In light and dark each text has its contrast, each section and table its headings, and nothing is cut off."""
    shown(browser, page)
    for dark, background in ((False, "rgb(255, 255, 255)"), (True, "rgb(20, 23, 26)")):
        browser.colour(dark=dark)
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == background
        assert browser.evaluate(CONTRAST) == []
    shown(browser, page)
    count = browser.count
    assert count("details h2") >= 12
    assert count("details table") == count("details table > caption") >= 8
    assert count("thead th:not([scope=col])") == 0
    assert browser.evaluate("document.documentElement.lang") == "en"
    shown(browser, page)
    printed = browser.ask("Page.printToPDF", preferCSSPageSize=True, transferMode="ReturnAsStream")
    assert printed["stream"]
    assert browser.evaluate("[...document.querySelectorAll('details')].every((e) => e.open)") is True
