"""The live page in a real browser, of a collector with TLS and credentials: login, views, live changes, links."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from fixtures.browser import Browser
from fixtures.collector import Caller, Collector
from isochrone_client.formats import UNKNOWN
from isochrone_collector.clock import now_at
from isochrone_common import identity_file
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import MINUTE_US, Vantage
from testdata.pushed_rounds import FIRST, PLAN, SECOND, SG, US, Fleet, rounds_until
from testdata.reading import printed_rows, run
from testdata.waiting import eventually

HOSTILE = "<script>document.title=1</script>"
EU = Vantage(name="eu-1", region="eu-central-1")
ROUNDS = 60
SLOWER_US = 150_000
ROUTE = f"/routes?region={US}&route=chat"
TARGET = f"/target/{FIRST}?tables=values,parts,bins,shares"
PATHS = ["/", "/?baseline=none", f"/map?target={FIRST}", TARGET, ROUTE, "/requests", "/fleet"]
TABLE = "document.querySelector('main table') && !document.querySelector('.waiting, [aria-busy=true]')"
LOGIN = "document.querySelector('form.login input[type=password]')"
CELLS = """
Object.fromEntries([...document.querySelectorAll('.matrix tbody tr')].map((row) => [row.querySelector('th').textContent,
  [...row.querySelectorAll('td')].map((cell) => (cell.querySelector('button') ?? cell).firstChild.textContent)]))
"""
NOTES = """
Object.fromEntries([...document.querySelectorAll('.matrix tbody tr')].map((row) => [row.querySelector('th').textContent,
  [...row.querySelectorAll('td')].map((cell) => cell.querySelector('small')?.textContent ?? '')]))
"""
LINES = "(e) => e.offsetHeight / parseFloat(getComputedStyle(e).lineHeight)"
TRENDS = ".matrix .trend svg"
# Weights and targets, in rank order.
MEMBERS = """
[...document.querySelectorAll('.routes tbody tr:has(.sum)')].map((row) =>
  [row.querySelector('.sum').lastChild.textContent, row.querySelector('th').textContent])
"""
ROWS = """
[...document.querySelectorAll('TABLE tbody tr')].map((row) =>
  [...row.cells].map((cell) => cell.firstChild?.nodeValue ?? ''))
"""
WHOLE_ROWS = ROWS.replace("cell.firstChild?.nodeValue ?? ''", "cell.textContent")
REQUESTS = "[...document.querySelectorAll('.requests tbody tr')].map((e) => e.dataset.key)"
# Requests of the page by the last part of their path, of which one is slow.
SLOW_DIFFERENTIALS = """
window.asked = {};
const send = window.fetch;
window.fetch = async (path, options) => {
  const name = String(path).split('?')[0].split('/').at(-1);
  asked[name] = (asked[name] ?? 0) + 1;
  if (name === 'diff') await new Promise((end) => setTimeout(end, 4_000));
  return send(path, options);
};
"""


def latency(target: str, region: str) -> int:
    return 200_000 + (SLOWER_US if (target, region) == (FIRST, SG) else 0)


def phases(region: str) -> dict[str, int]:
    times = 5 if region == SG else 1
    return {
        "dns_us": 2_000,
        "tcp_us": 8_000 * times,
        "tls_us": 9_000 * times,
        "rtt_us": 8_000 * times,
        "provider_us": 50_000,
    }


@dataclass(slots=True)
class Page:
    """The page of a collector, in a browser with a session, and what its fleet has pushed until `until_at`."""

    browser: Browser
    collector: Collector
    agents: Caller
    fleet: Fleet
    until_at: int

    def open(self, path: str, *, width: int = 1280, dark: bool = False, ready: str = TABLE) -> None:
        self.browser.open(f"{self.collector.http}{path}", width=width, dark=dark)
        self.browser.until(ready)

    @property
    def credential(self) -> str:
        return str(identity_file.read(self.collector.data_dir / "operator.json").credential)

    def log_in(self, credential: str) -> None:
        self.browser.evaluate("document.querySelector('form.login input[type=password]').focus()")
        self.browser.evaluate("document.querySelector('form.login input[type=password]').value = ''")
        self.browser.ask("Input.insertText", text=credential)
        self.browser.click("form.login button")

    def log_out(self) -> None:
        self.browser.until("document.querySelector('header').textContent.includes('log out')")
        self.browser.click("header button", "log out")
        self.browser.until(LOGIN)

    def regions(self) -> list[str]:
        """Return the regions of the matrix, in the order of its columns."""
        found: list[str] = self.browser.evaluate(
            "[...document.querySelectorAll('.matrix thead th button')].slice(1, -1).map((e) => e.dataset.key.slice(5))"
        )
        return found

    @property
    def fixed(self) -> str:
        """The query of the window of the first rounds, which later ones do not change."""
        return f"from={rfc3339(self.until_at - 2 * ROUNDS * MINUTE_US)}&until={rfc3339(self.until_at)}"

    def command(self, *words: str, window: str | None = "") -> list[dict[str, Any]]:
        """Return the rows that a command prints, for the same window unless it has another or none."""
        if window == "":
            window = f"{rfc3339(self.until_at - 2 * ROUNDS * MINUTE_US)}..{rfc3339(self.until_at)}"
        identity = str(self.collector.data_dir / "operator.json")
        options = ["--identity", identity, *([] if window is None else ["--window", window])]
        return printed_rows(self.collector.http_address, *words, *options)


@pytest.fixture(scope="module")
def page(browser: Browser, shared_guarded_collector: Collector) -> Iterator[Page]:
    """A page after its login, with rounds of three providers, one of them hostile, from two regions."""
    collector = shared_guarded_collector
    plan = PLAN.replace("provider: gamma", f"provider: {json.dumps(HOSTILE)}")
    plan = plan.replace("gamma/m", json.dumps(f"{HOSTILE}/m"))
    assert collector.call.apply(plan).problems == ()
    # Agents of the collector's user need no credential on its socket.
    agents = Caller(f"unix:{collector.data_dir}/collector.sock")
    fleet = Fleet({target.name: target.id for target in agents.targets().targets}, phases=phases)
    until_at = now_at() // MINUTE_US * MINUTE_US
    fleet.push_rounds(agents, rounds_until(until_at, ROUNDS), latency)
    browser.ask("Security.enable")
    browser.ask("Security.setIgnoreCertificateErrors", ignore=True)
    found = Page(browser, collector, agents, fleet, until_at)
    found.open("/", ready=LOGIN)
    found.log_in(found.credential)
    browser.until(TABLE)
    yield found
    agents.close()
    browser.ask("Security.setIgnoreCertificateErrors", ignore=False)


def test_login_and_logout(page: Page) -> None:
    """Without a session there is a form; a wrong credential is refused; after the login the address shows its view."""
    browser = page.browser
    page.open(f"/?baseline={US}")
    page.log_out()
    assert browser.evaluate("document.querySelector('table')") is None
    page.log_in(page.credential[:-4])
    browser.until("document.querySelector('.refused')")
    assert "credential" in browser.text(".refused")
    page.log_in(page.credential)
    browser.until("document.querySelector('.matrix')")
    assert browser.evaluate("location.search") == f"?baseline={US}"
    assert browser.evaluate("document.cookie") == ""


def test_a_pasted_identity_file_logs_in(page: Page) -> None:
    """Of the whole file only the credential is sent."""
    browser = page.browser
    page.open("/")
    page.log_out()
    page.log_in((page.collector.data_dir / "operator.json").read_text().replace("\n", ""))
    browser.until("document.querySelector('.matrix')")
    sent = [one["request"] for one in browser.seen("Network.requestWillBeSent")]
    (form,) = (one["postData"] for one in sent if one["method"] == "POST")
    assert form == f"credential={page.credential}"


def test_a_link_of_the_command_logs_in(page: Page) -> None:
    """`isochrone page` prints an address that logs in once, also in a page that is open, and does not stay in it."""
    browser = page.browser
    page.open("/")
    page.log_out()
    identity = str(page.collector.data_dir / "operator.json")
    link = run(page.collector.http_address, "page", "--identity", identity).stdout.strip()
    assert link.startswith(f"{page.collector.http}/#login=")
    browser.evaluate(f"location.href = {json.dumps(link)}")
    browser.until("document.querySelector('.matrix')")
    assert browser.evaluate("location.href") == f"{page.collector.http}/"
    urls = [one["request"]["url"] for one in browser.seen("Network.requestWillBeSent")]
    assert not any(link.partition("=")[2] in url for url in urls)
    page.log_out()
    page.open(link.removeprefix(page.collector.http), ready="document.querySelector('.refused')")
    assert "`isochrone page` prints another" in browser.text(".refused")
    page.log_in(page.credential)
    browser.until("document.querySelector('.matrix')")


@pytest.mark.parametrize(
    ("metric", "quantity", "scale"), [("ttft", "ttft_p50_us", 1e-3), ("speed", "tokens_per_second_p50", 1)]
)
def test_the_matrix_has_the_numbers_of_the_command(page: Page, metric: str, quantity: str, scale: float) -> None:
    """For the same window each cell is what `isochrone leaderboard --output json` prints, rounded."""
    page.open(f"/?metric={metric}&{page.fixed}")
    cells, regions = page.browser.evaluate(CELLS), page.regions()
    rows = page.command("leaderboard")
    assert len(rows) == 6
    for row in rows:
        assert cells[row["target"]][regions.index(row["region"])] == f"{row[quantity]['value'] * scale:.0f}"


def test_goodput_is_that_of_the_command(page: Page) -> None:
    """With the metric goodput, each cell is the share of `isochrone slo` for the chosen use."""
    page.open(f"/?metric=goodput&use=code&{page.fixed}")
    cells, regions = page.browser.evaluate(CELLS), page.regions()
    rows = page.command("slo", "--use", "code")
    assert len(rows) == 6
    for row in rows:
        assert cells[row["target"]][regions.index(row["region"])] == f"{100 * row['goodput']['value']:.0f}"


def test_differences_are_those_of_the_command(page: Page) -> None:
    """Each cell has the difference of a decided differential below its value, its colour, and its facts."""
    page.open(f"/?{page.fixed}")
    page.browser.until("document.querySelector('td.worse3')")
    notes, regions = page.browser.evaluate(NOTES), page.regions()
    assert regions[0] == US
    rows = {row["target"]: row for row in page.command("diff", "--baseline", US)}
    assert rows[FIRST]["decision"] == "slower"
    for target, row in rows.items():
        shown = "same" if row["decision"] == "equivalent" else f"{row['shift'] / 1000:+.0f}"
        assert notes[target][regions.index(SG)] == shown
    label = page.browser.evaluate("document.querySelector('.worse3 button').getAttribute('aria-label')")
    assert "decision: slower" in label
    assert f"rounds: {ROUNDS}" in label


def test_each_row_has_its_medians_over_time(page: Page) -> None:
    """They are those of the series, a line per region; a small window neither shows nor asks for them."""
    browser = page.browser
    page.open(f"/?{page.fixed}")
    browser.until("document.querySelector('.trend polyline')")
    assert browser.evaluate(f"[...document.querySelectorAll('{TRENDS}')].map((e) => e.childElementCount)") == [2, 2, 2]
    assert browser.count(".trend .median") == browser.count(".trend .other") == 3
    lines = browser.evaluate(f"[...document.querySelectorAll('{TRENDS} polyline')].map((e) => e.points.length)")
    series = page.command("series", "--points", "24")
    assert set(lines) == {len(row["points"]) for row in series}
    page.open(f"/?{page.fixed}", width=390)
    browser.until("document.querySelector('td.worse3')")
    assert not [one for one in browser.seen("Network.requestWillBeSent") if "/v1/series" in one["request"]["url"]]


def test_a_phone_shows_what_matters(page: Page) -> None:
    """Headings of regions have two lines at most, and what changed in a route is seen without scrolling."""
    browser = page.browser
    page.open("/", width=390)
    lines = browser.evaluate(f"[...document.querySelectorAll('.matrix thead button')].map({LINES})")
    assert max(lines) < 2.5
    page.open(ROUTE, width=390, ready="document.querySelector('.remarks')")
    assert browser.evaluate("document.querySelector('td.remarks').getBoundingClientRect().right") <= 390


def test_new_samples_arrive_without_a_reload(page: Page) -> None:
    """A region that has its first samples gets a column, in the same document."""
    page.open("/")
    page.browser.until("document.querySelector('.liveness.live')")
    page.browser.evaluate("window.before = document.querySelector('.matrix')")
    assert EU.region not in page.regions()
    page.fleet.push_rounds(page.agents, rounds_until(now_at(), 30), latency, vantages=[EU])
    page.browser.until(f"document.querySelector('thead').textContent.includes('{EU.region}')", seconds=20)
    page.browser.until("document.querySelectorAll('.matrix tbody tr:first-child .cell').length === 3", seconds=20)
    assert page.browser.evaluate("window.before === document.querySelector('.matrix')") is True


def test_a_slow_request_does_not_delay_the_others(page: Page) -> None:
    """What is known is shown before the slowest answer, and is asked again while that request pauses for long."""
    browser = page.browser
    script = browser.ask("Page.addScriptToEvaluateOnNewDocument", source=SLOW_DIFFERENTIALS)["identifier"]
    try:
        page.open(f"/target/{FIRST}", ready="document.querySelector('.bands')")
        assert browser.evaluate("document.querySelector('.differences')") is None
        browser.until("document.querySelector('.differences')")

        def is_ahead() -> bool:
            page.fleet.push_rounds(page.agents, [now_at()], latency)
            return bool(browser.evaluate("asked.incidents >= 4"))

        eventually(60, is_ahead, "fast requests are sent again", every=1)
        assert browser.evaluate("asked.diff") == 1
    finally:
        browser.ask("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_a_link_restores_the_state(page: Page) -> None:
    """What a user chooses is in the address; the same address shows it again, and going back shows what was before."""
    browser = page.browser
    page.open("/")
    browser.click(".segments input[value=speed]")
    browser.until("location.search === '?metric=speed'")
    browser.evaluate("document.querySelector('[data-key=\"sort price\"]').click()")
    browser.until("location.search.includes('sort=price')")
    browser.click("nav a", "Fleet")
    browser.until("location.pathname === '/fleet' && document.querySelector('h2')")
    browser.evaluate("history.back()")
    browser.until("document.querySelector('.segments input[value=speed]')?.checked")
    link = browser.evaluate("location.pathname + location.search")
    page.open(link)
    assert browser.evaluate("document.querySelector('.segments input[value=speed]').checked") is True
    assert browser.text("th[aria-sort]").startswith("output")


def test_filters_select_rows(page: Page) -> None:
    """A provider selects its targets, also by name from the address."""
    page.open("/?provider=beta")
    assert page.browser.evaluate(f"Object.keys({CELLS})") == [SECOND]
    page.open("/?find=ALPHA")
    assert page.browser.evaluate(f"Object.keys({CELLS})") == [FIRST]


def test_the_queries_of_the_matrix_begin_with_the_document(page: Page) -> None:
    """The browser asks them before the script of the page does, which takes the same answers; for all metrics."""
    page.open("/?metric=speed&window=6h")
    begun = page.browser.seen("Network.requestWillBeSent")
    for path in ("/v1/leaderboard?window=6h&quantity=", "/v1/targets", "/v1/vantages"):
        asked = [one for one in begun if one["request"]["url"].startswith(f"{page.collector.http}{path}")]
        assert len({one["request"]["url"] for one in asked}) == 1
        assert asked[0]["initiator"]["type"] != "script", asked[0]["initiator"]


@pytest.mark.parametrize("path", PATHS)
def test_each_view_is_sound(page: Page, path: str) -> None:
    """No foreign request, no message on the console, nothing cut off, and no serious violation in light and dark."""
    page.open(path)
    browser = page.browser
    assert browser.seen("Network.requestWillBeSent")
    assert browser.problems(f"{page.collector.http}/") == []
    assert browser.count("body script") == 0
    assert path.startswith("/target/") or HOSTILE in browser.text("main")
    assert browser.evaluate("document.title") != "1"
    assert browser.cut_off() == []
    assert browser.violations() == []


def test_cells_are_reached_by_keyboard(page: Page) -> None:
    """The matrix is one stop of the tab key; arrow keys move in it, and the facts of a cell are shown."""
    page.open("/")
    browser = page.browser
    assert browser.count('.matrix tbody [tabindex="0"]') == 1
    browser.evaluate("document.querySelector('.matrix tbody [tabindex=\"0\"]').focus()")
    first = browser.evaluate("document.activeElement.dataset.key")
    browser.press("ArrowRight")
    browser.press("ArrowDown")
    assert browser.evaluate("document.activeElement.dataset.key") != first
    assert "95 % interval" in browser.text(".details:not([hidden])")
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('.details').hidden") is True


def test_colours_are_chosen_in_the_address(page: Page) -> None:
    """The theme of the address overrides that of the system."""
    page.open("/?theme=dark", dark=False)
    assert page.browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    page.open("/?theme=light", dark=True)
    assert page.browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_it_can_be_printed(page: Page) -> None:
    """Controls are not printed."""
    page.open("/")
    page.browser.ask("Emulation.setEmulatedMedia", media="print")
    try:
        assert page.browser.evaluate("getComputedStyle(document.querySelector('.controls')).display") == "none"
    finally:
        page.browser.ask("Emulation.setEmulatedMedia", media="")


def test_routes_have_the_table_and_the_reasons_of_the_command(page: Page) -> None:
    """A link of the overview shows the members in rank order with their weights, and each step of the decision."""
    browser = page.browser
    page.open("/routes", ready="document.querySelector('.routes a')")
    browser.evaluate(f"[...document.querySelectorAll('.routes a')].find((e) => e.href.includes('{US}')).click()")
    browser.until("document.querySelector('.steps') && document.querySelector('.weights rect')")
    rows = page.command("routes", "--region", US, window=None)[0]["entries"]
    assert browser.evaluate(MEMBERS) == [[f"{100 * row['weight']:.0f}", row["target"]] for row in rows]
    assert browser.text(".steps").startswith("plan ")
    assert "byte for byte" in browser.text("main")


def test_a_slider_shows_past_tables(page: Page) -> None:
    """Arrow keys move to the first table of a route, which the address restores; a button shows the newest again."""
    browser = page.browser
    page.open(ROUTE, ready="document.querySelector('.slider input:not([disabled])')")
    browser.evaluate("document.querySelector('.slider input').focus()")
    browser.press("Home")
    browser.until("location.search.includes('generation=') && document.querySelector('.past')")
    first = browser.evaluate("new URLSearchParams(location.search).get('generation')")
    assert f"generation {first}," in browser.evaluate("document.querySelector('.slider input').ariaValueText")
    assert f"generation {first}," in browser.text(".past")
    page.open(f"{ROUTE}&generation={first}", ready="document.querySelector('.past')")
    assert browser.evaluate("Number(document.querySelector('.slider input').value)") < 0
    browser.evaluate("[...document.querySelectorAll('.slider button')][0].click()")
    browser.until("!location.search.includes('generation') && !document.querySelector('.past')")


def test_a_switch_arrives_in_the_routes(page: Page) -> None:
    """When the first choice fails everywhere, an open page shows the switch with its sentence, and the new weights."""
    browser = page.browser
    page.open(ROUTE, ready="document.querySelector('.weights')")
    browser.until("document.querySelector('.liveness.live')")
    browser.evaluate("window.before = document.querySelector('.weights')")
    at, first = now_at(), browser.evaluate(MEMBERS)[0][1]
    page.fleet.push_rounds(
        page.agents,
        [at - place for place in (3, 2, 1, 0)],
        lambda target, region: None if target == first else latency(target, region),
    )
    browser.until("document.querySelector('main').textContent.includes('hard')")
    rows = page.command("routes", "history", "--route", "chat", "--region", US, window="1h")
    (switch,) = (row for row in rows if row["change"] == "hard")
    browser.until(f"document.querySelector('main').textContent.includes({json.dumps(switch['sentence'])})")
    weights = {target: f"{100 * weight:.0f}" for target, weight in switch["weights"].items()}
    browser.until(f"({MEMBERS})[0][1] !== {json.dumps(first)}")
    assert {target: weight for weight, target in browser.evaluate(MEMBERS)} == weights
    assert browser.evaluate("window.before === document.querySelector('.weights')") is True


def test_a_target_has_the_numbers_of_the_command(page: Page) -> None:
    """For the same window each bucket and each difference is what the command prints, rounded."""
    page.open(f"/target/{FIRST}?baseline={US}&tables=values&{page.fixed}")
    page.browser.until("document.querySelector('.differences')")
    shown = {tuple(row[:2]): row for row in page.browser.evaluate(ROWS.replace("TABLE", ".values table"))}
    wanted = {
        (rfc3339(point["at"])[:16].replace("T", " "), row["region"]): point
        for row in page.command("series", "--target", FIRST, "--region", US, "--region", SG, "--points", "120")
        for point in row["points"]
    }
    assert len(wanted) == 2 * ROUNDS
    for key, point in wanted.items():
        assert shown[key][2:7] == [*(f"{point[name] / 1000:.0f}" for name in ("p10", "p50", "p90")), "2", "2"]
    assert page.browser.count(".bands .bucket") == len(shown)
    (row,) = page.command("diff", "--target", FIRST, "--baseline", US, "--against", SG)
    differences = {cells[0]: cells for cells in page.browser.evaluate(WHOLE_ROWS.replace("TABLE", ".differences"))}
    assert (differences[SG][2], differences[SG][4]) == (f"{row['shift'] / 1000:+.0f}", "slower")


def test_a_target_has_the_phases_of_the_command(page: Page) -> None:
    """Each phase of a difference is what `isochrone diff --explain` prints, rounded, and the parts are drawn."""
    page.open(f"/target/{FIRST}?baseline={US}&{page.fixed}")
    page.browser.until("document.querySelector('.phases')")
    (row,) = page.command("diff", "--explain", FIRST, "--baseline", US, "--against", SG)
    parts = {part["name"]: part for part in row["parts"]}
    assert list(parts) == ["dns", "tcp", "tls", "rtt", "server", "edge", "provider"]
    headings = page.browser.evaluate(
        "[...document.querySelectorAll('.contributions thead th')].map((e) => e.textContent)"
    )
    assert headings[1:-1] == ["dns", "tcp", "tls", "network", "server", "all", "behind the edge", "provider"]
    cells = {row[0]: row for row in page.browser.evaluate(WHOLE_ROWS.replace("TABLE", ".contributions"))}[SG]
    shifts = {name: round(part["shift"] / 1000) for name, part in parts.items()}
    whole = round(sum(parts[name]["shift"] for name in ("dns", "tcp", "tls", "rtt", "server")) / 1000)
    wanted = [*list(shifts.values())[:5], whole, *list(shifts.values())[5:]]
    assert cells[2:] == [*(f"{value:+d}" if value else "0" for value in wanted), str(row["n"])]
    drawn = page.browser.evaluate(f"document.querySelectorAll('.contributions tr[data-key=\"{SG}\"] rect').length")
    assert drawn == sum(part["shift"] != 0 for name, part in parts.items() if name != "server")


def test_a_target_has_the_distribution_of_the_command(page: Page) -> None:
    """Each bar is a bin of `isochrone series --bins`, on a logarithmic axis that all regions share."""
    page.open(f"/target/{FIRST}?tables=bins&{page.fixed}")
    page.browser.until("document.querySelector('.distribution')")
    shown = [tuple(row[1:4]) for row in page.browser.evaluate(ROWS.replace("TABLE", "details.bins table"))]
    series = page.command("series", "--target", FIRST, "--bins", "80")
    wanted = [(row["region"], one["high"] / 1000, str(one["n"])) for row in series for one in row["bins"]]
    assert len(wanted) > 20
    assert sorted((region, n) for region, _, n in shown) == sorted((region, n) for region, _, n in wanted)
    assert {float(high) for _, high, _ in shown} <= {round(high) for _, high, _ in wanted}
    assert page.browser.count(".distribution .bar") == len(wanted)
    left, right = page.browser.evaluate(
        "[...document.querySelectorAll('.distribution .panel:not(.axis)')].filter((e) => "
        f"['{US}', '{SG}'].includes(e.dataset.key)).map((e) => e.querySelector('.bar').getBoundingClientRect().left)"
    )[::-1]
    assert left < right


def test_a_target_has_the_goodput_of_the_command(page: Page) -> None:
    """Each bucket is that of `isochrone series --limit`, and each hour that of `isochrone slo --by hour`."""
    page.open(f"/target/{FIRST}?use=translation&tables=values,shares&{page.fixed}")
    page.browser.until("document.querySelector('.goodput') && document.querySelector('.hours')")
    assert page.browser.evaluate("document.querySelector('select[name=Goodput]').value") == "translation"
    shown = {tuple(row[:2]): row[2:] for row in page.browser.evaluate(ROWS.replace("TABLE", "details.shares table"))}
    series = page.command("series", "--target", FIRST, "--limit", "0.2", "--points", "60")
    wanted = {
        (rfc3339(point["at"])[:16].replace("T", " "), row["region"]): (point["good"], point["planned"])
        for row in series
        for point in row["points"]
    }
    assert {key: (int(good), int(planned)) for key, (_, good, planned) in shown.items()} == wanted
    assert 0 < sum(good for good, _ in wanted.values()) < sum(planned for _, planned in wanted.values())
    hours = {
        (row["region"], row["hour"]): str(int(100 * row["goodput"]["value"] + 1e-9))
        for row in page.command("slo", "--target", FIRST, "--use", "translation", "--by", "hour")
    }
    rows = page.browser.evaluate(WHOLE_ROWS.replace("TABLE", ".hours table"))
    assert {(row[0], hour): text for row in rows for hour, text in enumerate(row[1:]) if text != UNKNOWN} == hours


def test_the_charts_of_a_target_are_reached_by_keyboard(page: Page) -> None:
    """A chart is one tab stop, arrows show its facts, Enter opens a request; an unfolded table is in the address."""
    browser = page.browser
    page.open(f"/target/{FIRST}?{page.fixed}")
    browser.until("document.querySelector('.hours')")
    for name, fact in (("distribution", "values"), ("hours", "95 % interval"), ("goodput", "in time")):
        stop = f'section.{name} [tabindex="0"]:not(.scroll)'
        assert browser.evaluate(f"document.querySelectorAll('{stop}').length") == 1
        browser.evaluate(f"document.querySelector('{stop}').focus()")
        first = browser.evaluate("document.activeElement.dataset.key")
        browser.press("ArrowDown")
        assert browser.evaluate("document.activeElement.dataset.key") != first
        assert fact in browser.text(".details:not([hidden])")
    assert browser.evaluate("document.querySelector('details.shares').open") is False
    browser.click("details.shares summary")
    browser.until("document.querySelector('details.shares[open] tbody tr')")
    assert "tables=shares" in browser.evaluate("location.search")
    browser.evaluate("[...document.querySelectorAll('section.goodput .bucket')].at(-1).focus()")
    browser.press("Enter")
    browser.until("document.querySelector('.requests tbody tr')")
    browser.evaluate("history.back()")
    browser.until("document.querySelector('details.shares')?.open")


def test_the_name_of_a_target_opens_it(page: Page) -> None:
    """It is a link in the matrix, and keeps the window."""
    page.open(f"/?{page.fixed}")
    page.browser.evaluate(f"document.querySelector('.matrix tr[data-key=\"{FIRST}\"] th a').click()")
    page.browser.until("document.querySelector('.bands')")
    path, query = page.browser.evaluate("[location.pathname, new URLSearchParams(location.search).toString()]")
    assert (path, query) == (f"/target/{FIRST}", page.fixed.replace(":", "%3A"))


def test_a_bucket_opens_its_requests(page: Page) -> None:
    """Arrow keys reach a bucket, and Enter shows the requests of its region and time."""
    browser = page.browser
    page.open(f"/target/{FIRST}?{page.fixed}")
    assert browser.count('.bands .bucket[tabindex="0"]') == 1
    browser.evaluate("document.querySelector('.bands .bucket').focus()")
    for _ in range(browser.count(".bands h3") - 1):
        browser.press("ArrowDown")
    browser.press("ArrowRight")
    label = browser.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith(US)
    assert "median" in label
    begin = browser.evaluate("document.activeElement.dataset.key").split()[1]
    browser.press("Enter")
    browser.until("document.querySelector('.requests tbody tr')")
    rows = page.command("samples", "--target", FIRST, "--region", US, "--limit", "1000")
    wanted = [row["id"] for row in rows if row["round_at"].startswith(begin[:16])]
    assert len(wanted) == 2
    assert {row[1] for row in browser.evaluate(WHOLE_ROWS.replace("TABLE", ".requests"))} == {FIRST + US}
    assert browser.evaluate(REQUESTS) == wanted[::-1]


def test_a_filter_selects_requests(page: Page) -> None:
    """The filter of the address selects what the command with the same filter prints, and a wrong word is named."""
    browser, text = page.browser, f"ttft>=0.3s region:{SG[:4]}*"
    page.open(f"/requests?{page.fixed}&filter={quote(text)}")
    rows = page.command("samples", "--filter", text, "--limit", "1000")
    assert {(row["target"], row["region"]) for row in rows} == {(FIRST, SG)}
    assert browser.evaluate(REQUESTS) == [row["id"] for row in rows[::-1]]
    browser.evaluate("document.querySelector('input[name=filter]').value = 'tfft>500'")
    browser.evaluate("document.querySelector('input[name=filter]').dispatchEvent(new Event('change'))")
    browser.until("document.querySelector('.failure')")
    assert "character 1: unknown field 'tfft'; did you mean 'ttft'?" in browser.text(".failure")
    assert "filter=tfft" in browser.evaluate("location.search")


def test_a_request_opens_its_waterfall(page: Page) -> None:
    """A row opens the phases of its request below it, which the address keeps, and closes them again."""
    browser = page.browser
    page.open(f"/requests?{page.fixed}")
    browser.click(".requests tbody tr:nth-child(3) a")
    browser.until("document.querySelector('.requests .waterfall')")
    name = browser.evaluate("document.querySelector('.requests tr.shown').dataset.key")
    assert f"sample={name}" in browser.evaluate("location.search")
    (sample,) = page.command("samples", "--id", name, window=None)
    rows = browser.evaluate(ROWS.replace("TABLE", ".waterfall"))
    assert rows[-1][-1] == f"{(sample['connect_us'] + sample['e2e_us']) / 1000:.0f}"
    page.open(browser.evaluate("location.href").removeprefix(page.collector.http))
    browser.until("document.querySelector('.requests .waterfall')")
    browser.click(".requests tr.shown a")
    browser.until("!document.querySelector('.requests .waterfall')")
