"""The arithmetic of the bench of the live page: when a page asks again, what a visit transfers, shares of a core."""

import re
from typing import Any

import pytest

from bench.page import visitors
from bench.page.__main__ import Usage, core_pct
from bench.page.browsing import transferred_kib
from bench.page.visitors import PLAN, Pacing
from fixtures.node import STATIC
from isochrone_collector.http_api.queries import PAGE_AGE_S


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [
        ("refresher.js", "MIN_PAUSE_MS", 1000 * visitors.MIN_PAUSE_S),
        ("refresher.js", "PAUSE_SHARE", visitors.PAUSE_SHARE),
        ("api.js", "MAX_AGE_S", visitors.MAX_AGE_S),
        ("api.js", "MAX_AGE_S", PAGE_AGE_S),
    ],
)
def test_the_constants_are_those_of_the_page(file: str, name: str, value: float) -> None:
    """The pages without a browser pause as long, and accept answers as old, as the page does."""
    found = re.search(rf"^const {name} = ([\d_]+);", (STATIC / file).read_text(), re.MULTILINE)
    assert found is not None
    assert int(found[1]) == value


def test_a_request_is_sent_at_once_and_then_after_notices() -> None:
    """A page that was opened asks; after the answer it waits for a notice about what it shows, and for the pause."""
    page = Pacing()
    assert page.due_s() == 0
    page.end(began_s=10, now_s=10.01, as_of_s=10)
    assert page.due_s() is None
    page.hear([], refresh_s=1, now_s=10.5)
    assert page.due_s() == pytest.approx(11.01)
    page.end(began_s=11.01, now_s=11.02, as_of_s=11.01)
    page.hear(["tables"], refresh_s=1, now_s=20)
    assert page.due_s() is None
    page.hear(["samples"], refresh_s=1, now_s=21)
    assert page.due_s() == 21


@pytest.mark.parametrize(("refresh_s", "took_s", "pause_s"), [(0.5, 0.01, 1), (10, 0.01, 10), (1, 2, 40)])
def test_a_page_pauses(refresh_s: float, took_s: float, pause_s: float) -> None:
    """The pause is a second, that which the collector asks for, or twenty times as long as the answer took."""
    page = Pacing()
    page.hear([], refresh_s=refresh_s, now_s=0)
    page.end(began_s=1, now_s=1 + took_s, as_of_s=1)
    page.hear(["samples"], refresh_s=refresh_s, now_s=1 + took_s)
    assert page.due_s() == pytest.approx(1 + took_s + pause_s)


@pytest.mark.parametrize(("heard_s", "as_of_s", "asks_again"), [(4, 5, False), (4, 3, True), (5.5, 5, True)])
def test_what_is_newer_than_an_answer_is_asked_again(heard_s: float, as_of_s: float, asks_again: bool) -> None:  # noqa: FBT001  # a case
    """A shared answer may be older than the notice that made a page ask, and a notice may arrive while it asks."""
    page = Pacing()
    page.hear(["samples"], refresh_s=1, now_s=heard_s)
    page.end(began_s=5, now_s=6, as_of_s=as_of_s)
    assert (page.due_s() is not None) == asks_again


def test_answers_about_the_plan_are_asked_again_after_its_changes() -> None:
    """Such a request is sent when its page is opened and when its stream begins, and then not for samples."""
    request = Pacing(topics=(PLAN,))
    is_due = [request.due_s() is not None]
    for topics in ([], ["samples"], ["samples", "plan"]):
        request.end(began_s=1, now_s=1, as_of_s=1)
        request.hear(topics, refresh_s=1, now_s=1)
        is_due.append(request.due_s() is not None)
    assert is_due == [True, True, False, True]


def test_files_and_answers_are_counted_as_transferred() -> None:
    """Responses that have ended count by their path; a stream has not, and other events have no size."""
    events: list[dict[str, Any]] = [
        *(
            {
                "method": "Network.responseReceived",
                "params": {"requestId": name, "response": {"url": f"http://127.0.0.1:1{path}"}},
            }
            for name, path in (("1", "/"), ("2", "/page/d1/main.js"), ("3", "/v1/targets?a=b"), ("4", "/v1/changes"))
        ),
        {"method": "Page.loadEventFired", "params": {}},
        {"id": 7, "result": {}},
        *(
            {"method": "Network.loadingFinished", "params": {"requestId": name, "encodedDataLength": size}}
            for name, size in (("1", 1024), ("2", 2048), ("3", 512))
        ),
    ]
    assert transferred_kib(events) == (3.0, 0.5)


def test_a_share_of_a_core_is_that_of_all_periods() -> None:
    """Longer periods weigh more."""
    assert core_pct([Usage(cpu_s=1, seconds=10), Usage(cpu_s=6, seconds=30)]) == 17.5
