"""The map of the live page in a real browser: places, numbers, lines of equal latency, bounds of edges, links."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fixtures.browser import Browser
from fixtures.collector import Collector
from isochrone_client.formats import UNKNOWN
from isochrone_collector.clock import now_at
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import MINUTE_US, Vantage
from testdata.pushed_rounds import FIRST, PLAN, SECOND, SG, US, VANTAGES, Fleet, rounds_until
from testdata.reading import printed_rows

EU = "eu-central-1"
LAB = "lab"
MORE = (Vantage(name="eu-1", region=EU), Vantage(name="lab-1", region=LAB))
LATENCIES_US = {US: 200_000, EU: 300_000, SG: 450_000, LAB: 250_000}
RTT_US = 9_000
BOUND_KM = 900
ROUNDS = 60
READY = "document.querySelector('table.places') && !document.querySelector('.waiting, [aria-busy=true]')"
ROWS = """
Object.fromEntries([...document.querySelectorAll('.places tbody tr')].map((row) =>
  [row.cells[0].textContent, [...row.cells].slice(1).map((cell) => cell.textContent)]))
"""


@dataclass(slots=True)
class Page:
    """The page of a collector whose fleet has pushed rounds until `until_at`."""

    browser: Browser
    collector: Collector
    fleet: Fleet
    until_at: int

    def open(self, query: str = "", *, width: int = 1280) -> None:
        self.browser.open(f"{self.collector.http}/map{query}", width=width)
        self.browser.until(READY)

    @property
    def fixed(self) -> str:
        """The query of the window of the first rounds, which later ones do not change."""
        return f"from={rfc3339(self.until_at - 2 * ROUNDS * MINUTE_US)}&until={rfc3339(self.until_at)}"

    def command(self, *words: str, windowed: bool = True) -> list[dict[str, Any]]:
        window = f"{rfc3339(self.until_at - 2 * ROUNDS * MINUTE_US)}..{rfc3339(self.until_at)}"
        options = ["--window", window] if windowed else []
        return printed_rows(self.collector.http_address, *words, *options)


@pytest.fixture(scope="module")
def page(browser: Browser, shared_collector: Collector) -> Page:
    call = shared_collector.call
    assert call.apply(PLAN).problems == ()
    ids = {target.name: target.id for target in call.targets().targets}
    fleet = Fleet(ids, phases=lambda _region: {"rtt_us": RTT_US})
    until_at = now_at() // MINUTE_US * MINUTE_US
    rounds = rounds_until(until_at, ROUNDS)
    fleet.push_rounds(call, rounds, lambda _target, region: LATENCIES_US[region], vantages=[*VANTAGES, *MORE])
    found = Page(browser, shared_collector, fleet, until_at)
    # What the page of an earlier collector still logs ends here.
    found.open()
    return found


def test_the_map_has_the_numbers_and_places_of_the_commands(page: Page) -> None:
    """The table has the values of `leaderboard`, the places of `vantages` and the lowest round trip of `series`."""
    page.open(f"?target={FIRST}&{page.fixed}")
    shown = page.browser.evaluate(ROWS)
    places = {row["region"]: row["place"] for row in page.command("vantages", windowed=False)}
    trips = {
        row["region"]: row["points"]
        for row in page.command("series", "--target", FIRST, "--metric", "rtt", "--points", "24")
    }
    rows = page.command("leaderboard", "--target", FIRST)
    assert {row["region"] for row in rows} == set(shown) == set(LATENCIES_US)
    for row in rows:
        region, ttft = row["region"], row["ttft_p50_us"]
        cells = shown[region]
        assert cells[0] == f"{ttft['value'] / 1000:.0f}"
        assert cells[1] == f"{ttft['low'] / 1000:.0f} … {ttft['high'] / 1000:.0f}"
        assert cells[4] == f"{min(point['p50'] for point in trips[region]) / 1000:.1f}"
        assert cells[5] == f"within {BOUND_KM} km"
        assert cells[6] == (places[region] or UNKNOWN)
    assert shown[EU][6] == "Frankfurt"


def test_lines_and_bounds_are_drawn_and_named_as_such(page: Page) -> None:
    """Regions have marks and circles, lines lie between their values, and sentences state what is no measurement."""
    page.open(f"?target={FIRST}&{page.fixed}")
    browser = page.browser
    assert browser.count(".site") == 3
    assert browser.count("path.edge") == 3
    levels = browser.evaluate("[...document.querySelectorAll('.isolines text')].map((e) => parseInt(e.textContent))")
    assert len(levels) >= 3
    assert all(LATENCIES_US[US] < 1000 * level < LATENCIES_US[SG] for level in levels)
    assert browser.count(".isolines path") >= len(levels)
    notes = browser.evaluate("[...document.querySelectorAll('.note')].map((e) => e.textContent).join(' ')")
    for part in ("they are not measurements", "This is a bound, not a place", f"place is not known: {LAB}"):
        assert part in notes


def test_two_regions_have_no_lines(page: Page) -> None:
    """A sentence replaces the lines if fewer than three located regions have values."""
    page.open(f"?target={SECOND}&from={rfc3339(page.until_at - MINUTE_US)}&until={rfc3339(page.until_at)}")
    assert page.browser.count(".isolines path") == 0
    assert "need 3 regions" in page.browser.text("main")


def test_a_link_restores_the_map(page: Page) -> None:
    """The address has the user's choices, and shows them again."""
    browser = page.browser
    page.open()
    for name, value in (("Target", SECOND), ("Part of the world", "europe")):
        browser.evaluate(f"document.querySelector('select[name=\"{name}\"]').value = {json.dumps(value)}")
        browser.evaluate(f"document.querySelector('select[name=\"{name}\"]').dispatchEvent(new Event('change'))")
    browser.click(".segments input[value=speed]")
    browser.until("location.search.includes('metric=speed') && document.title.startsWith('Speed')")
    search = browser.evaluate("location.search")
    assert search == f"?metric=speed&target={SECOND.replace('/', '%2F')}&area=europe"
    page.open(search)
    assert SECOND in browser.text("h1")
    assert browser.evaluate("[...document.querySelectorAll('.site')].map((e) => e.dataset.key)") == [EU]
    assert US in browser.evaluate("document.querySelector('main').textContent.split('Outside')[1]")
    browser.evaluate(f"document.querySelector('a[href^=\"/target/{SECOND}\"]').click()")
    browser.until(f"location.pathname === '/target/{SECOND}' && document.querySelector('.bands')")


def test_marks_are_reached_by_keyboard(page: Page) -> None:
    """The marks are one stop of the tab key; arrow keys go from west to east, and the facts of a region are shown."""
    browser = page.browser
    page.open(f"?target={FIRST}&{page.fixed}")
    assert browser.count('.site[tabindex="0"]') == 1
    browser.evaluate("document.querySelector('.site[tabindex=\"0\"]').focus()")
    seen = [browser.evaluate("document.activeElement.dataset.key")]
    for _ in range(2):
        browser.press("ArrowRight")
        seen.append(browser.evaluate("document.activeElement.dataset.key"))
    assert seen == [US, EU, SG]
    facts = browser.text(".details:not([hidden])")
    for part in ("Singapore", "95 % interval", f"within {BOUND_KM} km"):
        assert part in facts
        assert part in browser.evaluate("document.activeElement.getAttribute('aria-label')")


def test_a_new_region_arrives_without_a_reload(page: Page) -> None:
    """The first samples of a region put its mark on the open map."""
    page.open(f"?target={FIRST}")
    browser = page.browser
    browser.until("document.querySelector('.liveness.live')")
    browser.evaluate("window.before = document.querySelector('.map svg')")
    tokyo = Vantage(name="tokyo-1", region="ap-northeast-1")
    rounds = rounds_until(now_at(), 30)
    page.fleet.push_rounds(page.collector.call, rounds, lambda *_: 400_000, vantages=[tokyo])
    browser.until("document.querySelector('.site[data-key=\"ap-northeast-1\"].cell')", seconds=30)
    assert browser.evaluate("window.before === document.querySelector('.map svg')") is True


@pytest.fixture(autouse=True)
def _quiet(page: Page) -> Iterator[None]:
    """Fails a test after which the console has an entry, or a request went to another address."""
    yield
    assert page.browser.problems(f"{page.collector.http}/") == []
