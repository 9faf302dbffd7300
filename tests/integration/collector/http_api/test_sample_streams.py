"""Streams of samples over HTTP: exports that continue where they broke, and samples as they are stored."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fixtures.collector import Collector
from isochrone_client.window import now_at
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import MINUTE_US
from testdata.pushed_rounds import SG, US, Fleet, rounds_until

PLAN = f"""
baseline: {US}
every: 60s
targets:
  - {{provider: moonshot, model: kimi-k2.5, base_url: http://moonshot}}
  - {{provider: openai, model: gpt-5-mini, base_url: http://openai}}
"""
ROUNDS = 100
SAMPLES = 8 * ROUNDS
END_AT = now_at() // MINUTE_US * MINUTE_US - 10 * MINUTE_US
WINDOW = {"from": rfc3339(END_AT - ROUNDS * MINUTE_US), "until": rfc3339(END_AT)}
EXPORT, WATCH = "/v1/samples/export", "/v1/samples/watch"


def latency_us(_target: str, _region: str) -> int:
    return 200_000


@pytest.fixture(scope="module")
def fleet(shared_collector: Collector) -> Fleet:
    """A hundred rounds of two targets from two regions, with two vantages each."""
    shared_collector.call.apply(PLAN)
    fleet = Fleet({target.name: target.id for target in shared_collector.call.targets().targets})
    fleet.push_rounds(shared_collector.call, rounds_until(END_AT, ROUNDS), latency_us)
    return fleet


@pytest.fixture(scope="module")
def http(shared_collector: Collector, fleet: Fleet) -> Iterator[httpx.Client]:  # its samples
    """A client of the collector's HTTP interface."""
    with httpx.Client(base_url=shared_collector.http, trust_env=False, timeout=60) as client:
        yield client


def exported(http: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    answer = http.get(EXPORT, params={**WINDOW, **parameters}).raise_for_status()
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_an_export_has_every_sample_once(http: httpx.Client) -> None:
    """Every sample of the window is a line, oldest round first, and equals its row of /v1/samples."""
    rows = exported(http)
    assert len({row["id"] for row in rows}) == len(rows) == SAMPLES
    assert [row["round_at"] for row in rows] == sorted(row["round_at"] for row in rows)
    (listed,) = http.get(f"/v1/samples/{rows[7]['id']}").json()["rows"]
    assert listed == rows[7]
    assert exported(http, region=SG, target="openai/*") == [
        row for row in rows if (row["region"], row["target"]) == (SG, "openai/gpt-5-mini")
    ]


@pytest.mark.parametrize("lines", [1, 250, SAMPLES - 1, SAMPLES])
def test_an_export_continues_after_any_line(http: httpx.Client, lines: int) -> None:
    """An export that broke after any line continues with the next one: nothing is lost or repeated."""
    rows = exported(http)
    assert exported(http, after=rows[lines - 1]["id"]) == rows[lines:]


def test_the_newest_samples_come_first(http: httpx.Client) -> None:
    """`newest` limits the export to the newest rounds, newest first."""
    rows = exported(http, newest=10)
    assert len(rows) == 10
    assert rows[0]["round_at"] == max(row["round_at"] for row in exported(http))
    assert [row["round_at"] for row in rows] == sorted((row["round_at"] for row in rows), reverse=True)
    assert exported(http, **{"from": "2001-01-01T00:00:00Z", "until": "2001-01-02T00:00:00Z"}) == []


@pytest.mark.parametrize(
    ("path", "parameters", "status", "detail"),
    [
        (EXPORT, {"after": "sample_x"}, 400, "'sample_x' is not the id of a sample"),
        (EXPORT, {"newest": "3", "after": "sample_" + "A" * 59}, 400, "cannot be continued"),
        (EXPORT, {"newest": "10001"}, 400, "limit 10001 is outside"),
        (EXPORT, {"region": "mars"}, 404, "unknown region 'mars'"),
        (WATCH, {"region": "mars"}, 404, "unknown region 'mars'"),
        (WATCH, {"since": "2020-01-01T00:00:00Z"}, 400, "export older samples instead"),
    ],
)
def test_a_refusal_comes_before_the_first_byte(
    http: httpx.Client, path: str, parameters: dict[str, str], status: int, detail: str
) -> None:
    """A stream that cannot begin has a status and a problem document, as any other answer."""
    answer = http.get(path, params=parameters)
    assert answer.status_code == status
    assert detail in answer.json()["detail"]


def test_samples_are_sent_as_they_are_stored(shared_collector: Collector, http: httpx.Client, fleet: Fleet) -> None:
    """The first event comes at once and states from when a broken stream continues; stored samples follow."""
    newest = rounds_until(END_AT + MINUTE_US, 1)
    with http.stream("GET", WATCH, params={"region": SG}) as stream:
        lines = stream.iter_lines()
        began = next_event(lines)
        assert began["rows"] == []
        fleet.push_rounds(shared_collector.call, newest, latency_us)
        stored = next_event(lines)
    assert {(row["region"], row["round_at"]) for row in stored["rows"]} == {(SG, rfc3339(newest[0]))}
    ids = {row["id"] for row in stored["rows"]}
    for params, headers in (({"since": began["resume_at"]}, {}), ({}, {"Last-Event-ID": began["id"]})):
        with http.stream("GET", WATCH, params=params, headers=headers) as stream:
            assert ids < {row["id"] for row in next_event(stream.iter_lines())["rows"]}


def next_event(lines: Iterator[str]) -> dict[str, Any]:
    """Return the data and the id of the next event."""
    event_id = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        if name == "data":
            return {**json.loads(value), "id": event_id}
    raise AssertionError("the stream ended")
