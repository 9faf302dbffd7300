"""The arithmetic of benches: conclusions, busy neighbours, exports of aiperf, open pages, shared stalls."""

import json
import os
import re
import subprocess
import sys
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import aiperf
from bench.accuracy import compare
from bench.neighbours import BUSY, busy_neighbours, goals_of, measured
from bench.page import visitors
from bench.page.__main__ import Usage, core_pct
from bench.page.browsing import transferred_kib
from bench.page.visitors import PLAN, Pacing
from bench.processes import cpu_seconds
from bench.references import Measurement
from bench.result import Figure, Goal, Tally, at_least, at_most, conclude
from bench.truth.shared_stalls import World, hedged, plan_of, race_p99_error_pct, reported_race_p99_us
from fixtures.node import STATIC
from isochrone_collector.http_api.queries import PAGE_AGE_S
from testdata.waiting import eventually


@pytest.mark.parametrize(
    ("figure", "goal", "shown", "missed"),
    [
        (0.5, at_most(0.5), "0.5", ""),
        (0.51, at_most(0.5), "0.51", "x <= 0.5"),
        (1999.6, at_least(2000), "2000", "x >= 2000"),
        (nan, at_most(1), "nan", "x <= 1"),
        (Tally(10, 10), at_least(1), "10/10", ""),
        (Tally(9, 10), at_least(1), "9/10", "x >= 1"),
        ("skipped", at_most(1), "skipped", "x <= 1"),
    ],
)
def test_a_figure_meets_its_goal_or_misses_it(
    capsys: pytest.CaptureFixture[str], figure: Figure, goal: Goal, shown: str, missed: str
) -> None:
    """What was not measured misses its goal; a tally is compared as a share."""
    assert conclude({"other": "skipped", "x": figure}, {"x": goal}) == bool(missed)
    printed = capsys.readouterr()
    assert printed.out == f"RESULT x={shown} other=skipped\n"
    assert printed.err == (f"missed: {missed}\n" if missed else "")


TESTS = Path(__file__).parents[2]
HOST = (
    "from bench.neighbours import busy_neighbours\nwith busy_neighbours() as pids:\n  print(*pids, flush=True); input()"
)


def test_every_core_has_one_that_computes() -> None:
    """Each is pinned to a core of its own and uses its processor time; all have ended after the block."""
    with busy_neighbours() as pids:
        eventually(10, lambda: all(cpu_seconds(pid) > 0.2 for pid in pids), "every neighbour computes")
        assert [os.sched_getaffinity(pid) for pid in pids] == [{core} for core in sorted(os.sched_getaffinity(0))]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_they_end_with_a_benchmark_that_is_killed() -> None:
    """None is left when the benchmark had no chance to end them."""
    command = [sys.executable, "-c", HOST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TESTS) as host:
        assert host.stdout is not None
        pids = host.stdout.readline().split()
        host.kill()
    assert pids
    eventually(10, lambda: not any(_runs(pid.decode()) for pid in pids), "the neighbours end")


def test_both_parts_have_figures_and_the_same_goals() -> None:
    """The idle part is measured without neighbours; figures and goals of the busy part have a prefix."""
    asked: list[str] = []

    def measure(prefix: str) -> dict[str, float]:
        asked.append(prefix)
        return {"x": len(asked)}

    assert measured(["", BUSY], measure) == {"x": 1, "busy_x": 2}
    assert asked == ["", BUSY]
    assert goals_of(["", BUSY], {"x": at_most(2)}) == {"x": at_most(2), "busy_x": at_most(2)}


def _runs(pid: str) -> bool:
    """Return whether a process runs: its parent, which may be slow to reap it, is none of ours."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def record(*, phase: str = "profiling", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"x_request_id": "c918530c", "request_start_ns": 1795260503454062976, "benchmark_phase": phase},
        "metrics": {
            "time_to_first_token": {"value": 205.01115199999998, "unit": "ms"},
            "inter_chunk_latency": {"value": [8.772548, 8.736544], "unit": "ms"},
            "output_token_throughput_per_user": {"value": 100.01186436048363, "unit": "tokens/sec/user"},
        },
        "trace_data": {
            "trace_type": "aiohttp",
            "request_headers": {"X-Request-ID": "c918530c"},
            "response_headers": {"Server": "isochrone-sim", "X-Request-ID": "req_b04e"},
        },
    } | more


def test_a_measurement_is_found_by_the_servers_id() -> None:
    """TTFT in microseconds and tokens per second, under the server's id; warm-ups and failures are left out."""
    failed = record(error={"code": 503, "message": "overloaded"}, metrics={})
    [measurement] = aiperf.read_export(map(json.dumps, (record(phase="warmup"), failed, record())))
    assert measurement.request_id == "req_b04e"
    assert measurement.tokens_per_second == pytest.approx(100.01186)
    assert measurement.ttft_us == pytest.approx(205_011.152)


@pytest.mark.parametrize(
    "line", ["{}", "[]", "no JSON", json.dumps(record(metrics={})), json.dumps(record(trace_data=None))]
)
def test_another_shape_is_a_reason(line: str) -> None:
    """An export that a later version changed leaves the row out with a reason; it does not end the bench."""
    with pytest.raises(aiperf.AiperfUnavailable, match="unknown format"):
        aiperf.read_export([line])


def test_aiperf_that_is_away_or_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the command, or if a run fails, the row is left out with the reason."""
    command = tmp_path / "aiperf"
    monkeypatch.setenv(aiperf.VARIABLE, str(command))
    with pytest.raises(aiperf.AiperfUnavailable, match=aiperf.VARIABLE):
        aiperf.find()
    command.write_text(
        "#!/bin/sh\necho '11:26:49.309 INFO     Starting'\necho '11:26:49.310 ERROR    No tokenizer'\nexit 1\n"
    )
    command.chmod(0o755)
    with pytest.raises(aiperf.AiperfUnavailable, match="No tokenizer"):
        aiperf.measure(command, "http://127.0.0.1:1/v1", tmp_path, streams=1, requests=2)


def test_errors_are_those_of_each_request() -> None:
    """A measurement is compared with the truth of its own request; early and late do not cancel out."""
    truth = {
        name: {"request_at_ns": 0, "first_token_at_ns": 200_000_000, "last_token_at_ns": 1_690_000_000}
        for name in ("early", "late")
    }
    measurements = [Measurement("early", 199_000, 99.0), Measurement("late", 203_000, 101.0)]
    row = compare("any", measurements, truth, in_flight=2)
    assert (row.ttft_error_p50_us, row.ttft_error_p99_us) == (2_000, 3_000)
    assert row.tps_error_pct == pytest.approx(1.0)


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


def test_a_race_shows_the_stalls_that_its_members_share() -> None:
    """The p99 of a race over recorded rounds is that of two requests at once at any instant."""
    assert race_p99_error_pct(seed=1) < 10


@pytest.mark.parametrize("routed", [True, False])
def test_without_joint_rounds_nothing_is_reported(*, routed: bool) -> None:
    """Targets of no route are probed at different instants, where one of the two mostly avoids the stall."""
    world, plan = World(seed=1), plan_of(routed=routed)
    sent = world.sent(plan, 2_000)
    assert (reported_race_p99_us(plan, sent) is not None) == routed
    hidden = float(np.quantile(sent.ttft_us.min(axis=1), 0.99)) < 2e6
    assert hidden == (not routed)


def test_no_table_hedges_under_common_stalls() -> None:
    """A second request meets the same stall as the first; with stalls of its own it shortens the tail."""
    for seed in (1, 2):
        assert hedged(seed, common=True, tables=100)[0] == 0
    assert hedged(1, common=False, tables=100)[0] > 0
