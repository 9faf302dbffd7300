"""The public page in a real browser without a login: the status of all targets, and nothing else."""

import json
from dataclasses import dataclass

import pytest

from fixtures.browser import Browser
from fixtures.collector import PROXY_HEADERS, Caller, Collector
from isochrone_collector.clock import now_at
from isochrone_wire.model import MINUTE_US
from testdata.pushed_rounds import FIRST, PLAN, SECOND, SG, US, Fleet, rounds_until

HOSTILE = "<script>document.title=1</script>"
HOSTILE_TARGET = f"{HOSTILE}/m"
ROUNDS = 40
TABLE = "document.querySelector('.status tbody tr') && !document.querySelector('.waiting, [aria-busy=true]')"
FAILING = "document.querySelector('.status .bad') && document.querySelector('.findings li')"
SIGNED_OUT = "[...document.querySelectorAll('header a')].some((one) => one.textContent === 'log in')"
CELLS = """
Object.fromEntries([...document.querySelectorAll('.status tbody tr')].map((row) => [row.dataset.key,
  [...row.querySelectorAll('td')].map((cell) => cell.querySelector('.badge').textContent)]))
"""
INSIDE = """
document.querySelector('text').getBoundingClientRect().right <
  document.querySelectorAll('g rect')[1].getBoundingClientRect().left
"""


def latency(target: str, region: str) -> int | None:
    return None if (target, region) == (HOSTILE_TARGET, SG) else 200_000


@dataclass(slots=True)
class Page:
    browser: Browser
    collector: Collector

    def open(self) -> None:
        self.browser.open(f"{self.collector.http}/status", width=1280)
        self.browser.until(f"({TABLE}) && ({SIGNED_OUT})")


@pytest.fixture(scope="module")
def page(browser: Browser, shared_public_collector: Collector) -> Page:
    """A page with three targets, one of them hostile, which fails from one of two regions."""
    collector = shared_public_collector
    plan = PLAN.replace("provider: gamma", f"provider: {json.dumps(HOSTILE)}")
    plan = plan.replace("gamma/m", json.dumps(HOSTILE_TARGET))
    assert collector.call.apply(plan).problems == ()
    agents = Caller(f"unix:{collector.data_dir}/collector.sock")
    fleet = Fleet({target.name: target.id for target in agents.targets().targets})
    fleet.push_rounds(agents, rounds_until(now_at() // MINUTE_US * MINUTE_US, ROUNDS), latency)
    agents.close()
    browser.ask("Network.clearBrowserCookies")
    found = Page(browser, collector)
    found.open()
    browser.until(FAILING, seconds=30)
    return found


def test_the_public_sees_the_states(page: Page) -> None:
    """A row per target is shown without a login, with its state from each region, the incident and a sentence."""
    page.open()
    assert page.browser.evaluate(CELLS) == {
        # 40 rounds are too few to find a change without those of the other region.
        HOSTILE_TARGET: ["failing", "too young"],
        FIRST: ["ok", "ok"],
        SECOND: ["ok", "ok"],
    }
    text = page.browser.text("main")
    assert "1 critical finding; 1 of 6 pairs" in text
    assert f"{HOSTILE_TARGET} fails from {SG}" in text
    assert [word for word in ("us-1", "overloaded", "http:") if word in text] == []
    assert page.browser.count("nav li") == 1


def test_nothing_else_is_requested_and_nothing_fails(page: Page) -> None:
    """Every request goes to the collector, none to data that needs a login, and the console stays empty."""
    page.open()
    assert page.browser.problems(f"{page.collector.http}/") == []
    requested = {event["request"]["url"] for event in page.browser.seen("Network.requestWillBeSent")}
    assert {url for url in requested if "/v1/" in url} == {f"{page.collector.http}/v1/status"}
    assert {event["response"]["status"] for event in page.browser.seen("Network.responseReceived")} <= {200, 304}
    assert page.browser.count("body script") == 0
    assert page.browser.evaluate("document.title") == "Status · Isochrone"


def test_it_fits_and_is_accessible(page: Page) -> None:
    """Only the table scrolls sideways, and axe-core finds no serious violation, in light and dark."""
    page.open()
    assert page.browser.cut_off() == []
    assert page.browser.violations() == []


def test_other_views_need_a_login(page: Page) -> None:
    """The link to log in leads to the form, and back leads to the status, which asks for nothing."""
    page.open()
    page.browser.click("header a", "log in")
    page.browser.until("location.pathname === '/' && document.querySelector('form.login')")
    assert page.browser.evaluate("document.querySelector('main table')") is None
    page.browser.click("nav a")
    page.browser.until(f"location.pathname === '/status' && {TABLE}")


def test_a_user_of_a_proxy_reads_all_views(page: Page) -> None:
    """The page shows the data and the user's name, without a form and without a logout, which is the proxy's."""
    page.browser.ask("Network.setExtraHTTPHeaders", headers=PROXY_HEADERS)
    try:
        page.browser.open(f"{page.collector.http}/", width=1280)
        page.browser.until("document.querySelector('.matrix') && document.querySelector('header .note')")
        assert page.browser.text("header .note") == "oidc:ida"
        assert "log" not in page.browser.text("header")
        assert page.browser.count("nav li") > 3
        page.browser.until("document.querySelector('.liveness.live')")
    finally:
        page.browser.ask("Network.setExtraHTTPHeaders", headers={})


def test_badges_are_images(page: Page) -> None:
    """A badge is shown as an image, with the name of the hostile target as text, and so is that of an unknown one."""
    path = "/badge/%3Cscript%3Edocument.title%3D1%3C%2Fscript%3E/m"
    for query in ("?metric=ttft", "?metric=success", ""):
        page.browser.open(f"{page.collector.http}{path}/{SG}.svg{query}", width=390)
        page.browser.until("document.querySelector('svg text')")
        assert HOSTILE_TARGET in page.browser.text("svg > title")
        assert page.browser.count("script") == 0
        assert page.browser.seen("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    page.browser.open(f"{page.collector.http}/badge/{FIRST}/{US}.svg", width=390)
    page.browser.until("document.querySelector('svg text')")
    assert page.browser.evaluate(INSIDE) is True
