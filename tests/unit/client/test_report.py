"""Reports: the verdict, the answers for the page, and the page in one file."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import isochrone_common
from fixtures.fake_collector import COVERAGE, DIFFERENTIALS, NOW_AT, TARGETS, VANTAGES, WINDOW
from isochrone_client import offline_page, report
from isochrone_client.offline_page import render_html
from isochrone_client.pages.matrix import Matrix, matrix_of
from isochrone_client.report import Report, Section
from isochrone_wire.answers import Absence, Decision, DifferentialList, Metric, Selection
from isochrone_wire.fleet import CoverageList, TargetList, VantageList
from isochrone_wire.insights import AlertKind, Incident
from isochrone_wire.model import MINUTE_US, SECOND_US

FAILING = Incident(
    id=1,
    kind=AlertKind.TARGET_FAILING,
    subject="openai/gpt-5-mini",
    regions=("us-east-2",),
    failing=("us-east-2",),
    scope="one",
    first_failed_at=NOW_AT - 7 * MINUTE_US,
    last_failed_at=NOW_AT,
    opened_at=NOW_AT - 6 * MINUTE_US,
)
NONE = "No samples between 2026-11-20 08:00 and 2026-11-21 08:00 UTC"
ONLINE = replace(VANTAGES, vantages=VANTAGES.vantages[:1])
HOSTILE = '"></script><script>document.title=2</script><!--'


def comparison(rows: tuple[Any, ...]) -> str:
    return report._comparison(DifferentialList(window=WINDOW, differentials=rows))


def test_each_region_is_compared() -> None:
    """Each region has its counts and largest differences, many regions the total and the place of the largest."""
    assert comparison(DIFFERENTIALS) == (
        "Compared with us-east-2: from ap-southeast-1, 1 of 3 targets is slower (openai/gpt-5-mini by 191 ms, 180 … "
        "204) and 1 is faster (deepseek/deepseek-v4-flash by 30 ms, 25 … 35)."
    )
    undecided = tuple(replace(row, decision=Decision.UNDECIDED) for row in DIFFERENTIALS)
    assert comparison(undecided) == (
        "Compared with us-east-2: from ap-southeast-1, no difference of 3 targets is certain."
    )
    assert comparison(()) == ""
    rows = tuple(replace(row, region=f"{row.region}-{n}") for n in range(10) for row in DIFFERENTIALS)
    assert comparison(rows) == (
        "Compared with us-east-2: 10 of 30 pairs of a target and one of 10 regions are slower (most: openai/gpt-5-mini "
        "from ap-southeast-1-0 by 191 ms, 180 … 204) and 10 are faster (most: deepseek/deepseek-v4-flash from "
        "ap-southeast-1-0 by 30 ms, 25 … 35)."
    )


def test_what_happens_now() -> None:
    """Open incidents and absent vantages are what happens now; after the last one has ended, its end is stated."""

    def present(*found: Incident, vantages: VantageList = ONLINE, age_us: int = 0) -> str:
        return report._present(found, vantages, newest_at=NOW_AT - age_us, now_at=NOW_AT)

    assert present(FAILING) == "Now: openai/gpt-5-mini fails from us-east-2, since 07:53:00."
    ended = replace(FAILING, recovered_at=NOW_AT - MINUTE_US)
    assert present(ended) == "Now: no ongoing incident; the last one ended at 07:59:00 UTC."
    assert present() == "Now: no ongoing incident."
    assert present(*[FAILING] * 5).endswith("; and 2 more below.")
    assert present(vantages=VANTAGES, age_us=SECOND_US).startswith("Now: ohio-2 in us-east-2: last heartbeat 9 min ago")
    old = present(FAILING, vantages=VANTAGES, age_us=10 * MINUTE_US)
    assert old.startswith("At 07:50:00 UTC, the newest sample: openai/gpt-5-mini fails from us-east-2")


@pytest.mark.parametrize(
    ("plan", "vantages", "recorded", "absent", "sentences"),
    [
        (TargetList(plan_version=0, baseline=""), VantageList(plan_version=0, answered_at=NOW_AT), (), (), (0, 1, 2)),
        (TARGETS, VantageList(plan_version=3, answered_at=NOW_AT), (), ("us-east-2",), (1, 2, 4)),
        (TARGETS, ONLINE, (), (), (3,)),
        (TARGETS, ONLINE, ("ap-southeast-1",), ("us-east-2",), (4,)),
        (TARGETS, ONLINE, ("us-east-2", "ap-southeast-1"), (), (5,)),
    ],
)
def test_what_is_missing(
    plan: TargetList,
    vantages: VantageList,
    recorded: tuple[str, ...],
    absent: tuple[str, ...],
    sentences: tuple[int, ...],
) -> None:
    """Each reason for an empty comparison has a sentence with a remedy; those of regions are the collector's."""
    answer = DifferentialList(
        window=WINDOW,
        differentials=DIFFERENTIALS[2:],
        missing=tuple(Absence(region=one, sentence=f"no samples from {one}: start an agent there") for one in absent),
    )
    known = (
        "No plan is applied: isochrone-collector apply plan.yaml.",
        "No agent has reported yet: start one in each region with isochrone-agent run.",
        f"{NONE}.",
        f"{NONE}; the newest sample is 3 s old: use a longer --window.",
        "No samples from us-east-2: start an agent there.",
        "Too few rounds for a comparison of ap-southeast-1, us-east-2: 6 rounds of each target are needed.",
    )
    assert missing(answer, plan, vantages, recorded) == [known[place] for place in sentences]


def test_nothing_is_missing_with_a_comparison() -> None:
    """One difference is enough for a verdict; samples without a baseline cannot be compared."""
    answer = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)
    assert missing(answer, TARGETS, ONLINE, ()) == []
    assert missing(None, TARGETS, ONLINE, ("us-east-2",), baseline="") == [
        "There is no baseline region to compare with: choose one with --baseline."
    ]


def missing(
    answer: DifferentialList | None,
    plan: TargetList,
    vantages: VantageList,
    recorded: tuple[str, ...],
    *,
    baseline: str = "us-east-2",
) -> list[str]:
    """The reasons that a comparison is missing, given these answers."""
    asked = report.Questions(
        client=cast(Any, None),
        selection=Selection(window=WINDOW),
        metric=Metric.TTFT,
        baseline=baseline,
        now_at=NOW_AT,
        plan=plan,
        with_page=True,
        progress=lambda _name: None,
    )
    found = report._Answers(
        differences=answer,
        leaderboard=None,
        coverage=CoverageList(window=WINDOW, coverage=tuple(replace(COVERAGE[0], region=one) for one in recorded)),
        vantages=vantages,
        incidents=None,
        series=None,
        series_selection=asked.selection,
        tables=None,
        matrix=Matrix(metric=Metric.TTFT, baseline=baseline, regions=(), targets=()),
    )
    return report._missing(asked, found)


def made(*, name: str = "openai/gpt-5-mini") -> Report:
    rows = (replace(DIFFERENTIALS[2], target=name), replace(DIFFERENTIALS[0], target=name))
    return Report(
        title=f"LLM latency by region {name}",
        collector="127.0.0.1:4600",
        generated_at=NOW_AT,
        is_empty=False,
        verdict=(f"{name} is slower.",),
        facts=(("baseline", name),),
        matrix=matrix_of((), rows[1:], metric=Metric.TTFT, baseline="us-east-2"),
        sections=(Section(title="Targets"), Section(title="Routes", missing=f"Left out: {name}")),
        documents={"/v1/targets": {"rows": [{"name": name}]}},
        options={},
    )


def test_the_page_is_one_file() -> None:
    """The page is one file, with the answers that its views ask for."""
    text = render_html(made())
    assert "FOLDER" not in text
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text.partition("<style>")[0]) == []
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    [script] = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    assert offline_page._hashed(script) in text.partition("<style>")[0]
    assert "unsafe" not in text.partition("<style>")[0]
    [data] = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["answers"]["/v1/targets"] == {"rows": [{"name": "openai/gpt-5-mini"}]}
    views = (path.read_text() for path in sorted((Path(isochrone_common.__path__[0]) / "page" / "views").iterdir()))
    asked = {path for text in views for path in re.findall(r'"(/v1/[a-z-]+)"', text)} - {"/v1/samples", "/v1/status"}
    assert len(asked) >= 8
    assert {path for path in asked if path not in inspect.getsource(report)} == set()


def test_no_text_becomes_an_element() -> None:
    """Names and reasons stay texts; each target has its medians, marked if they are early, and the difference."""
    plain, hostile = render_html(made()), render_html(made(name=HOSTILE))
    assert hostile.count("<script") == plain.count("<script")
    assert hostile.count("</script") == plain.count("</script")
    assert "document.title=2</script>" not in hostile
    [data] = re.findall(r'<script type="application/json" id="report">(.*?)</script>', hostile, re.DOTALL)
    assert json.loads(data)["answers"]["/v1/targets"] == {"rows": [{"name": HOSTILE}]}
    text = render_html(made()).partition('<main id="view"')[2].partition("</main>")[0]
    assert '<span class="provider">openai/</span><wbr><b>gpt-5-mini</b>' in text
    assert re.search(r'<td class="cell \w*"><div>\d+[ <]', text)
    young = made()
    early = {place: replace(cell, is_early=True) for place, cell in young.matrix.cells.items()}
    assert re.search(r"<div>\d+\?", render_html(replace(young, matrix=replace(young.matrix, cells=early))))
    assert "<noscript>" not in text
