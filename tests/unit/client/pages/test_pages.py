"""Pages, in addition to their golden files: what is shown, in which order, and when an answer is none."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fixtures.fake_collector import (
    COVERAGE,
    DIFFERENTIALS,
    NOW_AT,
    SAMPLES,
    SPEND,
    STANDINGS,
    STEPPED,
    TARGETS,
    VANTAGES,
    WINDOW,
    FakeCollector,
    stored,
)
from isochrone_client.cli import cli
from isochrone_client.errors import BaselineError, ClientError, InsufficientError
from isochrone_client.formats import UNKNOWN
from isochrone_client.pages import (
    alerts,
    cells,
    differentials,
    fleet,
    latency_targets,
    leaderboard,
    samples,
    simulations,
)
from isochrone_client.pages.cells import EARLY, Footnotes
from isochrone_client.render import renderer
from isochrone_client.render.page import Page, RenderOptions, Row
from isochrone_wire.answers import (
    Absence,
    Decision,
    Differential,
    DifferentialList,
    Metric,
    Order,
    Proportion,
    Quantile,
    Side,
    Source,
)
from isochrone_wire.fleet import CoverageList, SpendList, TargetList, VantageList
from isochrone_wire.insights import (
    Eligible,
    LatencyBudget,
    LatencyBudgetList,
    Leaderboard,
    RegionCost,
    RegionCostList,
    Simulation,
    SimulationList,
    TierLine,
    TierList,
)
from isochrone_wire.json_format import minute
from isochrone_wire.model import SECOND_US, Budget, Outcome, Quality
from isochrone_wire.operations import INCIDENT_PREFIX, AlertDelivery, DeliveryState, incident_name
from isochrone_wire.queries.differential_order import DECIDED, select_rows
from testdata.insights import ALERTS, DRIFT, INCIDENTS, LATENCY_BUDGETS, REGION_COSTS, TIERS

ANSWER = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)
UNDECIDED = replace(DIFFERENTIALS[1], decision=Decision.UNDECIDED, reason="3 of 24 rounds needed")


def shown(page: Page[Row]) -> list[dict[str, str]]:
    titles = [column.title for column in page.columns]
    return [dict(zip(titles, cells, strict=True)) for table in page.tables() for cells in table.cells]


def pair(target: str, shift: float | None, *, region: str = "a", metric: Metric = Metric.TTFT) -> Differential:
    return replace(
        DIFFERENTIALS[0],
        target=target,
        shift=shift,
        shift_percent=shift,
        region=region,
        metric=metric,
        unit=metric.unit,
    )


@pytest.mark.parametrize(
    ("sort", "metric", "order"),
    [
        ("difference", Metric.TTFT, "bac?"),
        ("percent", Metric.TTFT, "bac?"),
        ("target", Metric.TTFT, "?abc"),
        ("difference", Metric.TOKENS_PER_SECOND, "cab?"),
        ("percent", Metric.TOKENS_PER_SECOND, "cab?"),
    ],
)
def test_the_best_comes_first(sort: str, metric: Metric, order: str) -> None:
    """Sorted by difference, a region's best target is first, for a rate the highest; unknown shifts are last."""
    rows = tuple(pair(name, shift, metric=metric) for name, shift in [("a", 1.0), ("?", None), ("b", -5.0), ("c", 9.0)])
    answer = DifferentialList(window=WINDOW, differentials=rows)
    assert "".join(row.target for row in select_rows(answer, sort=sort, only=None)) == order


def test_regions_stay_together() -> None:
    """Rows are sorted within a region, and regions keep the order of the answer."""
    rows = (pair("x", 3, region="b"), pair("y", 1, region="a"), pair("z", 2, region="b"))
    arranged = select_rows(DifferentialList(window=WINDOW, differentials=rows), sort="difference", only=None)
    assert [(row.region, row.target) for row in arranged] == [("b", "z"), ("b", "x"), ("a", "y")]


@pytest.mark.parametrize(
    ("only", "kept"), [(None, 3), ("decided", 2), ("faster", 1), ("slower", 1), ("equivalent", 0), ("undecided", 1)]
)
def test_only_keeps_what_it_says(only: str | None, kept: int) -> None:
    """`--only` keeps one decision, or all except `undecided`."""
    assert len(select_rows(ANSWER, sort="target", only=only)) == kept


def test_a_shift_without_an_interval_is_marked() -> None:
    """A difference without an interval has a question mark for people; programs get the value of the wire."""
    row = replace(DIFFERENTIALS[0], shift_low=None)
    page = differentials.page(ANSWER, (row,), metric=Metric.TTFT, now_at=NOW_AT)
    assert shown(page)[0]["difference (ms)"] == "+191?"
    assert shown(page)[0]["relative (%)"].endswith("?")
    assert EARLY in page.notes
    assert page.record(row)["shift"] == 191_250.0


def footnotes_of(page: Page[Row]) -> tuple[str, ...]:
    return tuple(note for note in page.notes if note.startswith("["))


def test_a_mixed_decision_has_its_reason_below() -> None:
    """Programs get the reason as for an undecided one, and people as a footnote; it counts as decided."""
    row = replace(DIFFERENTIALS[1], decision=Decision.MIXED, reason="slower by 713 ms, but its median is faster")
    answer = replace(ANSWER, differentials=(row,))
    page = differentials.page(answer, (row,), metric=Metric.TTFT, now_at=NOW_AT)
    assert shown(page)[0]["decision"] == "mixed [1]"
    assert footnotes_of(page) == ("[1] slower by 713 ms, but its median is faster",)
    assert select_rows(answer, sort="target", only=DECIDED) == (row,)
    differentials.require_decision(answer, (row,), baseline="us-east-2", only=None)


@pytest.mark.parametrize(
    ("n", "n_eff", "shown_rounds"), [(60, 12.3, "60 ≈ 12"), (60, 60.0, "60"), (60, None, "60"), (0, 28.4, "0 ≈ 28")]
)
def test_rounds_and_what_they_are_worth(n: int, n_eff: float | None, shown_rounds: str) -> None:
    """Rounds have the number of independent ones beside them if that is another one."""
    row = replace(DIFFERENTIALS[0], n=n, n_eff=n_eff)
    assert shown(differentials.page(ANSWER, (row,), metric=Metric.TTFT, now_at=NOW_AT))[0]["rounds ≈ independent"] == (
        shown_rounds
    )


def test_the_server_is_all_behind_the_address() -> None:
    """The server's part has a note with what it contains; an undecided difference has its reason as a footnote."""
    with_server = differentials.page(ANSWER, DIFFERENTIALS, metric=Metric.TTFT, now_at=NOW_AT)
    without = differentials.page(ANSWER, DIFFERENTIALS[2:], metric=Metric.TTFT, now_at=NOW_AT)
    notes = [[note for note in page.notes if note.startswith("server: ")] for page in (with_server, without)]
    assert notes == [
        ["server: everything behind the address that was dialled, from the provider's edge to the model"],
        [],
    ]
    rows = (UNDECIDED, DIFFERENTIALS[1], replace(UNDECIDED, reason="coverage 40 %"), UNDECIDED)
    page = differentials.page(ANSWER, rows, metric=Metric.TTFT, now_at=NOW_AT)
    assert [row["decision"] for row in shown(page)] == ["undecided [1]", "faster", "undecided [2]", "undecided [1]"]
    assert footnotes_of(page) == ("[1] 3 of 24 rounds needed", "[2] coverage 40 %")


HEALTHY = Side(coverage=0.95, failures=Proportion(value=0.01, low=0.0, high=0.02, n=900))


BUSY = f"{UNDECIDED.region} was busy: 51 % of its probes are not compared"


@pytest.mark.parametrize(
    ("row", "remark"),
    [
        (replace(DIFFERENTIALS[1], baseline_side=HEALTHY, region_side=HEALTHY), ""),
        (replace(DIFFERENTIALS[1], baseline_side=replace(HEALTHY, coverage=0.42)), "us-east-2 has 42 % of its rounds"),
        (replace(DIFFERENTIALS[1], baseline_side=Side(n=7, coverage=7 / 8)), ""),
        (replace(DIFFERENTIALS[1], baseline_side=Side(n=14, coverage=14 / 16)), "us-east-2 has 88 % of its rounds"),
        (replace(DIFFERENTIALS[1], region_side=replace(HEALTHY, left_out=0.1)), ""),
        (
            replace(DIFFERENTIALS[1], region_side=replace(HEALTHY, left_out=0.389)),
            "ap-southeast-1 was busy: 38 % of its probes are not compared",
        ),
        (replace(UNDECIDED, reason=BUSY, region_side=replace(HEALTHY, left_out=0.519)), BUSY),
        (DIFFERENTIALS[0], "3.1 % of 1483 probes failed from ap-southeast-1"),
        (replace(DIFFERENTIALS[1], newest_at=NOW_AT - 7_200 * SECOND_US), "no round for 2 h"),
        (replace(DIFFERENTIALS[1], newest_at=NOW_AT - 3_600 * SECOND_US), ""),
        (
            replace(DIFFERENTIALS[1], since_at=NOW_AT - 3_600 * SECOND_US),
            "only rounds since the change at 2026-11-21 07:00",
        ),
        (
            replace(DIFFERENTIALS[1], paired=False, n=0),
            "no rounds in common: 1431 of ap-southeast-1 and 1440 of us-east-2, unpaired",
        ),
    ],
)
def test_only_problems_are_noted(row: Differential, remark: str) -> None:
    """Coverage, failures, age, pairing and change points are noted only if they matter."""
    page = differentials.page(ANSWER, (row,), metric=Metric.TTFT, now_at=NOW_AT)
    assert footnotes_of(page) == ((f"[1] {remark}",) if remark else ())


def test_a_busy_vantage_is_named_beside_its_values() -> None:
    """The leaderboard names the region with the share over its targets, and the list of vantages the vantage."""
    first, *others = STANDINGS
    rows = (replace(first, left_out=0.2), *others)
    notes = [leaderboard.page(Leaderboard(window=WINDOW, standings=some)).notes for some in (rows[:1], STANDINGS)]
    assert [[note for note in of if "busy" in note] for of in notes] == [
        [f"{first.region} was busy: 20 % of its probes are not compared"],
        [],
    ]
    vantage = replace(VANTAGES.vantages[0], left_out=0.4)
    page = fleet.vantages_page(replace(VANTAGES, vantages=(vantage,)))
    assert f"{vantage.name} was busy: 40 % of its probes are not compared" in page.notes[0]


def test_a_decision_after_a_step_has_its_beginning() -> None:
    """A decision after a step has its beginning and both levels; only latencies have a network and a server."""
    page = differentials.page(ANSWER, (STEPPED,), metric=Metric.TTFT, now_at=NOW_AT)
    assert shown(page)[0]["decision"] == "slower since 07:58:48 [1]"
    note = "+400 ms since 07:58:48: the difference is +435 ms in 12 rounds, and was +35 ms in 19 rounds before"
    assert note in page.notes[0]
    for metric, split in ((Metric.TTFT, True), (Metric.RTT, False), (Metric.TOKENS_PER_SECOND, False)):
        page = differentials.page(ANSWER, (UNDECIDED,), metric=metric, now_at=NOW_AT)
        assert ({"network", "server"} <= {column.heading for column in page.columns}) == split


def test_a_rate_is_not_a_duration() -> None:
    """Tokens per second are not divided by a thousand, and every heading has the unit."""
    row = replace(
        pair("a", 12.5, metric=Metric.TOKENS_PER_SECOND), baseline_median=60.2, shift_low=11.0, shift_high=14.0
    )
    page = differentials.page(ANSWER, (row,), metric=Metric.TOKENS_PER_SECOND, now_at=NOW_AT)
    assert shown(page)[0]["baseline → region (tokens/s)"] == "60 → 512900"
    assert shown(page)[0]["interval (95 %, tokens/s)"] == "+11 … +14"
    assert "baseline_median_tokens_per_second" in [field.header for field in page.fields]


def test_an_empty_remark_has_no_mark() -> None:
    """Footnotes are numbered from 1 in the order of their first use, and an empty remark has no mark."""
    footnotes = Footnotes(["", "late", "", "early", "late"])
    assert footnotes.marked("x", "") == "x"
    assert footnotes.marked("x", "early") == "x [2]"
    assert footnotes.notes == ("[1] late", "[2] early")


CERTAINTY = json.loads((Path(__file__).parents[3] / "testdata" / "certainty.json").read_text())


@pytest.mark.parametrize("case", CERTAINTY, ids=lambda case: f"p{100 * case['share']:g} of {case['n']}")
def test_a_value_is_shown_from_the_first_sample_on(case: dict[str, Any]) -> None:
    """A value without an interval is marked, and beside it is what the interval has of the samples that it needs."""
    quantile, share = Quantile(**case["quantile"]), case["share"]
    text = cells.pattern_of(quantile, share=share, n=case["n"]).format(quantile.value)
    assert (text, cells.progress_of(quantile, share=share)) == (case["text"], case["progress"])


@pytest.mark.parametrize(
    ("quantile", "text", "is_explained"),
    [
        (Quantile(value=260_300, low=251_000, high=270_000), "260", False),
        (Quantile(value=260_300), "260?", True),
        (Quantile(value=260_300, low=251_000), "260?", True),
        (None, UNKNOWN, False),
    ],
)
def test_a_percentile_without_its_interval_is_explained(
    quantile: Quantile | None, text: str, *, is_explained: bool
) -> None:
    """A dash means no sample; a note explains a value without both bounds."""
    page = leaderboard.page(Leaderboard(window=WINDOW, standings=(replace(STANDINGS[0], ttft_p95_us=quantile),)))
    assert shown(page)[0]["ttft p95 (ms)"] == text
    assert (EARLY in page.notes) == is_explained


@pytest.mark.parametrize(
    ("quantile", "text"),
    [
        (Quantile(value=5, low=4, high=6, n_eff=7), "4.0 … 6.0"),
        (Quantile(value=5, n_eff=3.2), "3 of 6"),
        (Quantile(value=5, low=4, n_eff=3.2), "≥ 4.0"),
        (None, UNKNOWN),
    ],
)
def test_an_interval_is_replaced_by_what_it_needs(quantile: Quantile | None, text: str) -> None:
    """In place of an interval is its one bound, or the independent samples of those needed, or a dash without one."""
    row = replace(STANDINGS[0], tokens_per_second_p50=quantile)
    page = leaderboard.page(Leaderboard(window=WINDOW, order=Order.TOKENS_PER_SECOND, standings=(row,)))
    assert shown(page)[0]["interval (95 %)"] == text


@pytest.mark.parametrize(
    ("order", "changes"),
    [
        (Order.TTFT, {"ttft_p50_us": None}),
        (Order.PRICE, {"usd_per_m_output": None}),
        (Order.TOKENS_PER_USD, {"usd_per_m_output": None}),
        (Order.TOKENS_PER_USD, {"tokens_per_second_p50": None}),
        (Order.SUCCESS, {"success": None}),
    ],
)
def test_without_a_value_there_is_no_rank(order: Order, changes: dict[str, Any]) -> None:
    """A row without what the order ranks by has a dash; one with a value but no interval shares the possible ranks."""
    early = Quantile(value=1.0)
    row = replace(STANDINGS[0], rank=2, rank_low=1, rank_high=3, ttft_p50_us=early, tokens_per_second_p50=early)
    page = leaderboard.page(Leaderboard(window=WINDOW, order=order, standings=(row, replace(row, **changes))))
    assert [line["rank"] for line in shown(page)] == ["1-3", UNKNOWN]


def test_ranks_count_within_a_region() -> None:
    """A leaderboard has one table per region, each by rank."""
    rows = tuple(
        replace(STANDINGS[0], region=region, rank=rank) for region, rank in [("b", 2), ("a", 2), ("b", 1), ("a", 1)]
    )
    tables = leaderboard.page(Leaderboard(window=WINDOW, standings=rows)).tables()
    assert [(table.heading, [row.rank for row in table.rows]) for table in tables] == [
        ("from a", [1, 2]),
        ("from b", [1, 2]),
    ]


@pytest.mark.parametrize(("low", "high", "text"), [(2, 2, "2"), (1, 3, "1-3")])
def test_a_rank_that_is_not_certain_is_a_range(low: int, high: int, text: str) -> None:
    """Neighbours that the data do not tell apart share ranks, and a note explains them."""
    standing = replace(STANDINGS[0], rank=2, rank_low=low, rank_high=high)
    tier = replace(TIERS[0], rank=2, rank_low=low, rank_high=high)
    board = leaderboard.page(Leaderboard(window=WINDOW, standings=(standing,)))
    tiers = leaderboard.tiers_page(TierList(window=WINDOW, tiers=(tier,)))
    assert [shown(board)[0]["rank"], shown(tiers)[0]["rank"]] == [text] * 2
    for notes in (board.notes, tiers.notes):
        assert any(note.startswith("rank 1-3:") for note in notes) == (low < high)


def test_a_sample_says_what_is_wrong_with_it() -> None:
    """A sample shows its HTTP status, error, flags and unknown frames, and a clean one nothing."""
    rows = (
        stored(2, outcome=Outcome.HTTP_ERROR, http_status=529, error="overloaded"),
        stored(1, quality=Quality.LAGGED | Quality.BUFFERED, frames_unknown=3),
        stored(0),
    )
    page = samples.page(rows, window=WINDOW, now_at=NOW_AT)
    assert [row["outcome"] for row in shown(page)] == ["http_error 529 [1]", "ok [2]", "ok"]
    assert page.notes == ("[1] overloaded", "[2] lagged, buffered; unknown frames: 3")


@pytest.mark.parametrize(
    ("finished", "ledgered", "waiting", "quarantined", "dropped", "account"),
    [
        (100, 100, 0, 0, {}, "all accounted for"),
        (100, 80, 20, 0, {}, "all accounted for"),
        (100, 80, 10, 5, {"spool_full": 3, "too_old": 2}, "all accounted for"),
        (100, 90, 20, 0, {}, "all accounted for"),
        (100, 100, 20, 0, {}, "all accounted for"),
        (100, 90, 0, 0, {}, "10 lost"),
        (100, 101, 20, 0, {}, "1 duplicate"),
        (100, 100, 0, 0, {"too_old": 1}, "1 duplicate"),
        (0, 7, 0, 0, {}, UNKNOWN),
    ],
)
def test_every_sample_is_accounted_for(  # noqa: PLR0917  # a case of the table
    finished: int, ledgered: int, waiting: int, quarantined: int, dropped: dict[str, int], account: str
) -> None:
    """Samples neither stored, spooled nor dropped are lost; the ledger may be ahead by those in flight."""
    row = replace(
        VANTAGES.vantages[0],
        finished=finished,
        ledgered=ledgered,
        spool_depth=waiting,
        quarantined=quarantined,
        dropped=dropped,
    )
    assert fleet.account_of(row) == account


@pytest.mark.parametrize(
    ("changes", "column", "text"),
    [
        ({}, "plan", "3"),
        ({"plan_version": 2}, "plan", "2 behind"),
        ({"plan_version": 0}, "plan", f"{UNKNOWN} behind"),
        ({"plan_version": 2, "refused_plan_version": 3}, "plan", "2 refuses 3"),
        ({"next_heartbeat_at": NOW_AT - 70 * SECOND_US}, "heartbeat (due)", "1 min ago"),
        ({"next_heartbeat_at": None}, "heartbeat (due)", UNKNOWN),
        ({"clock_offset_us": -41_800, "clock_uncertainty_us": 12_345}, "clock (ms)", "-41.8 ± 12.3"),
        ({"clock_offset_us": -41_800, "clock_uncertainty_us": None}, "clock (ms)", "-41.8"),
        ({"clock_offset_us": None}, "clock (ms)", UNKNOWN),
        ({"agent_version": ""}, "agent", UNKNOWN),
        ({"quarantined": 4}, "state", "online [1]"),
        ({"refused_targets": "sim/b: 10.0.0.1 is not a public address"}, "state", "online [1]"),
        ({"missing_keys": "openai/x needs the credential 'openai'"}, "state", "online [1]"),
        ({"rounds_missed": 4}, "state", "online [1]"),
        ({"dropped": {"spool_full": 0}}, "state", "online"),
    ],
)
def test_a_vantage_in_numbers(changes: dict[str, object], column: str, text: str) -> None:
    """Outdated plans, overdue heartbeats and the uncertainty of clocks are shown."""
    row = replace(VANTAGES.vantages[0], **changes)  # type: ignore[arg-type]  # a case of the table
    page = fleet.vantages_page(replace(VANTAGES, vantages=(row,)))
    assert shown(page)[0][column] == text


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        (Budget(provider="openai", usd_per_day=1.0, tokens_per_day=1_000_000), ("24", "72")),
        (Budget(provider="openai", usd_per_day=1.0, requests_per_day=960), ("50", "150")),
        (Budget(provider="openai", tokens_per_day=124_320), ("100", "300")),
        (Budget(provider="openai", usd_per_day=0.0), (UNKNOWN, UNKNOWN)),
        (Budget(provider="openai"), (UNKNOWN, UNKNOWN)),
        (None, (UNKNOWN, UNKNOWN)),
    ],
)
def test_the_tightest_limit_is_the_budget(budget: Budget | None, told: tuple[str, str]) -> None:
    """The share shown is that of the limit, of dollars, tokens and requests, that is reached first."""
    page = fleet.spend_page(SpendList(spend=(replace(SPEND[0], budget=budget),)))
    [row] = shown(page)
    assert (row["spent (% of it)"], row["forecast (% of it)"]) == told
    assert bool(page.notes) == (float(told[1].replace(UNKNOWN, "0")) > 100)


BOARD = Leaderboard(window=WINDOW, standings=STANDINGS)
VERDICTS = LatencyBudgetList(window=WINDOW, budgets=LATENCY_BUDGETS)
COSTS = RegionCostList(window=WINDOW, costs=REGION_COSTS)
LINES = TierList(window=WINDOW, tiers=TIERS)
WITHOUT_INTERVAL = Quantile(value=1.0)


@pytest.mark.parametrize(
    ("order", "column", "text"),
    [
        (Order.TTFT, "ttft p50 (ms)", "180"),
        (Order.TTFT_COLD, "cold p50 (ms)", "214"),
        (Order.TTFAT, "ttfat p50 (ms)", "180"),
        (Order.E2E, "e2e p50 (ms)", "3502"),
        (Order.TOKENS_PER_SECOND, "speed p50 (tokens/s)", "60"),
        (Order.TOKENS_PER_USD, "speed (per $/M)", "241"),
        (Order.PRICE, "output ($/M)", "0.25"),
        (Order.SUCCESS, "success (%)", "99.4"),
    ],
)
def test_each_order_shows_what_it_ranks_by_first(order: Order, column: str, text: str) -> None:
    """The quantity of the order follows rank and names, and every table fits 100 columns."""
    page = leaderboard.page(replace(BOARD, order=order))
    assert page.columns[3].title == column
    assert shown(page)[0][column] == text
    table = renderer("table").whole(page, RenderOptions())
    assert all(len(line) <= 100 for line in table.splitlines())
    assert page.facts["order"] == order.value


def test_free_is_not_unknown() -> None:
    """A free target is `free`, one without a price a dash; from summaries a note has the error of percentiles."""
    rows = (replace(STANDINGS[0], usd_per_m_output=0.0, tokens_per_second_per_usd=None), STANDINGS[1])
    page = leaderboard.page(Leaderboard(window=WINDOW, standings=rows, order=Order.TOKENS_PER_USD))
    assert [row["speed (per $/M)"] for row in shown(page)] == ["free", UNKNOWN]
    told = leaderboard.page(replace(BOARD, source=Source.SUMMARIES))
    assert any("summaries" in note for note in told.notes)
    assert not any("summaries" in note for note in leaderboard.page(BOARD).notes)
    assert (told.facts["source"], leaderboard.page(BOARD).facts["source"]) == ("summaries", "samples")


def test_latency_targets_are_a_matrix() -> None:
    """Each target of a region has one row with a word per use; programs get a record per use."""
    page = latency_targets.page(VERDICTS)
    assert [(row.region, row.target) for row in page.rows] == [
        ("ap-southeast-1", "deepseek/deepseek-v4-flash"),
        ("ap-southeast-1", "openai/gpt-5-mini"),
        ("us-east-2", "deepseek/deepseek-v4-flash"),
        ("us-east-2", "openai/gpt-5-mini"),
    ]
    assert [row["voice (300 ms)"] for row in shown(page)] == ["maybe", "?", "yes", "no"]
    assert [row["target"] for row in shown(page)][1] == "openai/gpt-5-mini [1]"
    assert [row["step (5 s)"] for row in shown(page)] == [UNKNOWN, UNKNOWN, "yes", UNKNOWN]
    assert "[1] 3 of 59 samples" in page.notes
    assert "limit on ttft: voice; on e2e: step" in page.notes
    assert [record["use"] for record in page.iter_records()] == [row.use for row in LATENCY_BUDGETS]


def test_a_reason_of_one_use_stands_beside_it() -> None:
    """A reason that all uses share is a footnote of the target, otherwise of the uses."""
    row = replace(LATENCY_BUDGETS[3], use="step")
    other = replace(row, use="code", reason="40 of 59 samples")
    cells = shown(latency_targets.page(replace(VERDICTS, budgets=(row, other))))[0]
    assert (cells["target"], cells["step (300 ms)"], cells["code (300 ms)"]) == (row.target, "? [1]", "? [2]")


def test_one_use_shows_goodput_and_percentile() -> None:
    """One use has goodput and percentile with intervals, hours have a row each, and a limit names what it is on."""
    page = latency_targets.page(replace(VERDICTS, budgets=LATENCY_BUDGETS[:4]))
    maybe, unknown, _, failing = shown(page)
    assert (maybe["in time (%)"], maybe["interval (95 %, %)"]) == ("95.2", "94.0 … 96.2")
    assert (maybe["ttft p95 (ms)"], maybe["interval (95 %, ms)"], maybe["n ≈ independent"]) == (
        "298",
        "290 … 306",
        "1440",
    )
    assert (unknown["ttft p95 (ms)"], unknown["n ≈ independent"]) == (UNKNOWN, "3")
    assert (failing["in time (%)"], failing["target"]) == ("55.8", "openai/gpt-5-mini [2]")
    rows = tuple(replace(LATENCY_BUDGETS[0], hour=hour) for hour in (23, 0, 7))
    page = latency_targets.page(replace(VERDICTS, budgets=rows))
    assert [row["hour (UTC)"] for row in shown(page)] == ["00", "07", "23"]
    assert not any("hour (UTC)" in row for row in shown(latency_targets.page(VERDICTS)))
    row = replace(LATENCY_BUDGETS[4], use="limit", answer_tokens=500, min_tokens_per_second=30.0)
    page = latency_targets.page(replace(VERDICTS, budgets=(row,)))
    assert "limit on e2e of 500 tokens at 30 tokens/s or more: limit" in page.notes


def test_all_nine_uses_fit_the_screen() -> None:
    """The matrix of all built-in uses has at most 100 columns, even if all of it is unknown."""
    names = ("edge", "translation", "voice", "code", "chat", "web", "inline", "step", "agent")
    row = replace(LATENCY_BUDGETS[3], limit_us=300_000)
    rows = tuple(replace(row, use=name) for name in names)
    table = renderer("table").whole(latency_targets.page(replace(VERDICTS, budgets=rows)), RenderOptions())
    assert all(name in table.replace("\n", " ") for name in names)
    assert "…" not in table
    assert all(len(line) <= 100 for line in table.splitlines())


def test_tiers_stay_together_within_a_region() -> None:
    """A region's table goes from the cheapest tier to the most expensive one, in any order of regions."""
    elsewhere = tuple(replace(row, region="ap-southeast-1") for row in TIERS)
    page = leaderboard.tiers_page(replace(LINES, tiers=(TIERS[0], elsewhere[0], TIERS[1], elsewhere[1])))
    assert [(row.region, row.tier) for row in page.rows] == [
        ("ap-southeast-1", "sweet spot"),
        ("ap-southeast-1", "premium"),
        ("us-east-2", "sweet spot"),
        ("us-east-2", "premium"),
    ]


def test_cells_with_too_few_independent_samples_share_a_footnote() -> None:
    """In the matrix of all uses the footnote has no numbers of a cell; for one use it has."""
    few = [
        replace(row, eligible=Eligible.UNKNOWN, reason=f"246 samples ≈ {n} independent, of 59")
        for n, row in enumerate(LATENCY_BUDGETS, start=20)
    ]
    one_use = [row for row in few if row.use == few[0].use]
    matrix, single = (
        [note for note in latency_targets.page(replace(VERDICTS, budgets=tuple(rows))).notes if "independent" in note]
        for rows in (few, one_use)
    )
    assert matrix == ["[1] fewer than 59 independent samples: --use USE shows how many"]
    assert any("samples ≈" in note for note in single)


def test_a_change_that_cut_the_window_is_stated_once_per_provider() -> None:
    """The best region's line states since when rounds count; the others' lines only their own reason."""
    since_at = WINDOW.from_at + 60_000_000
    cut = replace(COSTS, costs=tuple(replace(row, since_at=since_at) for row in REGION_COSTS))
    page = leaderboard.best_page(cut, metric=Metric.TTFT)
    assert [row["decision"] for row in shown(page)] == ["best [1]", "slower [2]", "undecided [3]"]
    assert (
        page.notes[0]
        == f"[1] provisional: less than 48 hours of history; only rounds since a change at {minute(since_at)}"
    )
    assert page.notes[1] == "[2] provisional: less than 48 hours of history"


def test_a_region_is_slower_by_a_value_without_an_interval() -> None:
    """What a region adds is shown before it has an interval, with a question mark that a note explains."""
    early = replace(REGION_COSTS[1], added=12_000.0, added_low=None, added_high=None)
    page = leaderboard.best_page(replace(COSTS, costs=(early,)), metric=Metric.TTFT)
    assert shown(page)[0]["slower by (ms)"] == "12?"
    assert EARLY in page.notes
    assert EARLY not in leaderboard.best_page(replace(COSTS, costs=REGION_COSTS[:2]), metric=Metric.TTFT).notes


def test_a_rate_is_added_in_its_own_unit() -> None:
    """A smaller rate is slower by a positive number of tokens per second; CSV has the difference, with its unit."""
    page = leaderboard.best_page(
        RegionCostList(
            window=WINDOW,
            costs=(
                replace(
                    REGION_COSTS[1],
                    metric=Metric.TOKENS_PER_SECOND,
                    median=50.0,
                    added=-12.0,
                    added_low=-13.0,
                    added_high=-11.0,
                ),
            ),
        ),
        metric=Metric.TOKENS_PER_SECOND,
    )
    assert shown(page)[0]["slower by (tokens/s)"] == "12"
    assert shown(page)[0]["interval (95 %, tokens/s)"] == "11 … 13"
    assert "added_tokens_per_second" in [field.header for field in page.fields]


LEARNT = "the first 6 rounds were only learnt from"
CHARGED = "usd counts every request that was begun as charged in full, as a cancelled stream may be"


def around(ms: float) -> Quantile:
    return Quantile(value=1000 * ms, low=900 * ms, high=1100 * ms)


STATIC = Simulation(
    policy="static:p/a",
    region="us",
    rounds=100,
    requests=100,
    ttft_p50_us=around(300),
    ttft_p95_us=around(900),
    usd=0.5,
    note=LEARNT,
)
RACE = replace(
    STATIC,
    policy="race:2",
    requests=200,
    ttft_p50_us=around(250),
    ttft_p95_us=around(400),
    usd=None,
    note=f"{LEARNT}; {CHARGED}",
)


NEVER = replace(STATIC, rounds=0, requests=0, note="nothing to replay: p/b was never probed there")


def simulated(*rows: Simulation) -> SimulationList:
    return SimulationList(window=WINDOW, members=("p/a", "p/b") if rows else (), simulations=rows)


def table(*rows: Simulation) -> str:
    return renderer("table").whole(simulations.page(simulated(*rows)), RenderOptions())


def test_differences_are_to_the_static_line() -> None:
    """Changes are to the static line; what lines share is noted once, and a dash has its reason below."""
    for rows in ((STATIC, RACE), (RACE, STATIC)):
        [line] = [line for line in table(*rows).splitlines() if line.startswith("race")]
        assert " ".join(line.split()) == f"race:2 [1] 250 -50 400 360 … 440 -500 100 200 {UNKNOWN}"
    static, race = (
        replace(row, ttft_p95_us=replace(around(ms), high=None)) for row, ms in ((STATIC, 900), (RACE, 400))
    )
    [line] = [line for line in table(static, race).splitlines() if line.startswith("race")]
    assert " ".join(line.split()) == f"race:2 [1] 250 -50 400? ≥ 360 -500 100 200 {UNKNOWN}"
    text = table(STATIC, RACE, replace(STATIC, region="sg"), replace(RACE, region="sg"))
    assert text.count("were only learnt from") == 2
    assert text.count("charged in full") == 1
    assert text.count("change: relative to") == 1
    assert "us: the first 6 rounds" in " ".join(text.split())
    why = "not replayed, as its members are not probed in the same rounds"
    refused = replace(RACE, rounds=0, requests=0, ttft_p50_us=None, ttft_p95_us=None, note=f"{LEARNT}; {why}")
    text = table(STATIC, refused)
    assert text.count("from us") == 1
    assert f"[1] {why}" in text
    assert "us: the first 6 rounds" in text
    text = table(STATIC, replace(RACE, ttft_p95_us=Quantile(value=400_000)))
    assert "a p95 59" in text
    assert "400?" in text


def test_an_empty_answer_has_a_reason() -> None:
    """Without incidents the message states how many targets are watched, or that none is measured."""
    empty = replace(INCIDENTS, incidents=())
    assert alerts.no_incidents(empty, past=False) == (
        "no open incidents: 9 targets are watched; --past shows those that ended"
    )
    assert alerts.no_incidents(replace(empty, watched=1), past=True).endswith("08:00 UTC: 1 target is watched")
    assert alerts.no_incidents(replace(empty, watched=0), past=False) == (
        "no incidents: no target is measured, so none can fail"
    )


def test_ids_are_read_as_they_are_shown() -> None:
    """Ids are read as they are shown; a change of speed has its own unit, and a mark if it may be weekly."""
    for row in INCIDENTS.incidents:
        name = incident_name(row.id)
        assert alerts.parse_incident_id(name) == alerts.parse_incident_id(name.removeprefix(INCIDENT_PREFIX)) == row.id
    for text in ("alert_1f", "moonshot/kimi-k2.5", "", "-1", "1" * 17):
        with pytest.raises(ClientError, match="not the id of an incident"):
            alerts.parse_incident_id(text)
    slower = replace(DRIFT.events[0], metric=Metric.TOKENS_PER_SECOND, before=60.0, after=42.0, change_percent=-30.0)
    text = renderer("table").whole(alerts.drift_page(replace(DRIFT, events=(slower, *DRIFT.events))), RenderOptions())
    assert text.index("ttft, ms") < text.index("tokens_per_second, tokens/s")
    numbers = text.partition("tokens_per_second, tokens/s")[2].split()
    assert numbers[numbers.index("-30.0") - 2 :][:2] == ["60", "42"]
    known = replace(DRIFT.events[0], may_be_weekly=False)
    for events, marks in (((known, *DRIFT.events), 1), ((known,), 0)):
        text = renderer("table").whole(alerts.drift_page(replace(DRIFT, events=events)), RenderOptions())
        assert text.split().count("weekly") == marks


def test_no_change_is_an_answer(observatory: FakeCollector) -> None:
    """If no watched series changed, the exit code is 0 and a message is on stderr."""
    observatory.drift = replace(DRIFT, events=())
    done = CliRunner().invoke(cli, ["drift", "--collector", observatory.address])
    assert done.exit_code == 0
    assert "no lasting change between" in done.stderr
    assert "4 series watched; 1 more had fewer than 60 rounds" in done.stderr


def test_missing_webhook_is_reported(observatory: FakeCollector) -> None:
    """Without a webhook, the list ends with the option that sets one, even if it is empty."""
    observatory.alerts = replace(ALERTS, webhook=False)
    assert "serve --alert-url" in CliRunner().invoke(cli, ["alerts", "--collector", observatory.address]).stdout
    observatory.alerts = replace(ALERTS, webhook=False, alerts=())
    done = CliRunner().invoke(cli, ["alerts", "--collector", observatory.address])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "serve --alert-url" in done.stderr


def test_receivers_are_shown_apart_where_they_differ() -> None:
    """One word for all receivers if they agree, else the names of those that have it not."""
    told = AlertDelivery(receiver="chat", state=DeliveryState.DELIVERED, delivered_at=1, attempts=1)
    silenced = AlertDelivery(receiver="oncall", state=DeliveryState.SILENCED)
    lost = AlertDelivery(receiver="oncall", state=DeliveryState.GIVEN_UP, attempts=9, last_error="no connection")
    for deliveries, words in (
        ((told, replace(told, receiver="oncall")), "  yes"),
        ((replace(told, attempts=3),), "yes, attempt 3"),
        ((told, silenced), "silenced: oncall"),
        ((told, lost), "given up: oncall [1]"),
    ):
        row = replace(ALERTS.alerts[0], deliveries=deliveries)
        text = renderer("table").whole(alerts.page(replace(ALERTS, alerts=(row,))), RenderOptions(width=300))
        assert words in text
        assert ("[1]" in text) == ("[1]" in words)


UNDECIDED_COSTS = tuple(replace(row, decision=Decision.UNDECIDED) for row in REGION_COSTS)
ALL_UNKNOWN = tuple(replace(row, eligible=Eligible.UNKNOWN, n=3, reason="3 of 59 samples") for row in LATENCY_BUDGETS)
UNPRICED = tuple(replace(row, usd_per_m_output=None) for row in STANDINGS)
TWO_SAMPLES = replace(BOARD, order=Order.E2E, standings=(replace(STANDINGS[0], n=2, e2e_p50_us=WITHOUT_INTERVAL),))
FEW_OF_A_TIER = replace(TIERS[0], n=3, ttft_p50_us=WITHOUT_INTERVAL)


def ranked(order: Order) -> None:
    leaderboard.require_ranking(replace(BOARD, order=order, standings=UNPRICED))


def verdicts(*budgets: LatencyBudget) -> None:
    latency_targets.require_verdict(replace(VERDICTS, budgets=budgets))


def tiers(*found: TierLine) -> None:
    leaderboard.require_tiers(replace(LINES, tiers=found))


def best(*costs: RegionCost) -> None:
    leaderboard.require_best(replace(COSTS, costs=costs))


NO_DRIFT = replace(DRIFT, events=(), watched=0)


def decide(answer: DifferentialList, rows: tuple[Differential, ...] = (), only: str | None = None) -> None:
    differentials.require_decision(answer, rows, baseline="us-east-2", only=only)


NOTHING = DifferentialList(window=WINDOW)
NOTHING_AT_ALL = replace(NOTHING, missing=(Absence(region="us-east-2", sentence="no samples from us-east-2"),))
ONE_UNDECIDED = replace(ANSWER, differentials=(UNDECIDED,))
TWO_UNDECIDED = replace(ANSWER, differentials=(UNDECIDED, UNDECIDED))
EMPTY_LEADERBOARD = Leaderboard(window=WINDOW)
NO_MEDIAN = Leaderboard(window=WINDOW, standings=(replace(STANDINGS[0], n=0, ttft_p50_us=None),))
NOBODY = VantageList(plan_version=0, answered_at=NOW_AT)
NONE_ONLINE = replace(VANTAGES, vantages=VANTAGES.vantages[1:])
NOTHING_RECORDED = CoverageList(window=WINDOW, coverage=COVERAGE[1:])


@pytest.mark.parametrize(
    ("require", "sentence", "hint"),
    [
        (
            lambda: decide(NOTHING, ()),
            "no samples from any region but us-east-2 between 2026-11-20 08:00 and",
            "isochrone coverage",
        ),
        (lambda: decide(NOTHING_AT_ALL, ()), "no samples between 2026-11-20 08:00 and", "isochrone coverage"),
        (lambda: decide(ANSWER, (), "equivalent"), "none of 3 differentials is equivalent", "--only"),
        (lambda: decide(TWO_UNDECIDED, (UNDECIDED,) * 2), "all 2 differentials are undecided", "--window"),
        (lambda: decide(ONE_UNDECIDED, (UNDECIDED,)), "the only differential is undecided", "--window"),
        (lambda: leaderboard.require_ranking(EMPTY_LEADERBOARD), "no samples between", "isochrone coverage"),
        (lambda: leaderboard.require_ranking(NO_MEDIAN), "no sample of any target has a value", "isochrone samples"),
        (lambda: fleet.require_targets(TargetList(plan_version=0, baseline="")), "no plan", "apply"),
        (lambda: fleet.require_targets(TargetList(plan_version=2, baseline="a")), "plan 2 has no targets", "apply"),
        (lambda: fleet.require_rounds(CoverageList(window=WINDOW)), "no round was planned", "isochrone vantages"),
        (lambda: fleet.require_rounds(NOTHING_RECORDED), "none of 1440 planned rounds", "is an agent running"),
        (lambda: samples.require_samples((), window=WINDOW), "no samples between", "isochrone coverage"),
        (lambda: fleet.require_online(NOBODY), "no vantage is known yet", "vantage add"),
        (lambda: fleet.require_online(NONE_ONLINE), "none of 2 vantages is online", "isochrone-agent doctor"),
        (lambda: fleet.require_spend(SpendList()), "there is no spend", "isochrone vantages"),
        (lambda: ranked(Order.PRICE), "no target has a price", "plan"),
        (verdicts, "no samples between", "isochrone coverage"),
        (lambda: verdicts(*ALL_UNKNOWN), "3 of 59 samples", "--window"),
        (tiers, "no samples between", "isochrone coverage"),
        (lambda: tiers(replace(TIERS[0], usd_per_m_output=None)), "no target has a price", "plan"),
        (lambda: tiers(replace(TIERS[0], ttft_p50_us=None)), "no sample of any target", "isochrone samples"),
        (best, "no samples between", "isochrone coverage"),
        (lambda: best(*UNDECIDED_COSTS), "nothing is decided", "--window"),
        (lambda: best(UNDECIDED_COSTS[0]), "nothing is decided", "isochrone-collector vantage add"),
        (lambda: alerts.require_watched(replace(NO_DRIFT, too_short=3)), "none of 3 series has the 60", "--window"),
        (lambda: alerts.require_watched(replace(NO_DRIFT, too_short=0)), "no samples between", "isochrone coverage"),
        (lambda: simulations.require_replay(simulated(NEVER)), "p/b was never probed", "--window"),
        (lambda: simulations.require_replay(simulated()), "no samples between", "isochrone coverage"),
    ],
)
def test_too_little_data_is_an_error(require: Callable[[], object], sentence: str, hint: str) -> None:
    """An answer without a result is an error with the reason, a hint and exit code 4."""
    with pytest.raises(InsufficientError) as caught:
        require()
    assert sentence in str(caught.value)
    assert hint in caught.value.hint
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    "require",
    [
        lambda: decide(ANSWER, DIFFERENTIALS),
        lambda: decide(ANSWER, DIFFERENTIALS[2:], "undecided"),
        lambda: leaderboard.require_ranking(Leaderboard(window=WINDOW, standings=STANDINGS)),
        lambda: fleet.require_targets(TARGETS),
        lambda: fleet.require_rounds(CoverageList(window=WINDOW, coverage=COVERAGE)),
        lambda: samples.require_samples(SAMPLES, window=WINDOW),
        lambda: fleet.require_online(VANTAGES),
        lambda: fleet.require_spend(SpendList(spend=SPEND)),
        lambda: simulations.require_replay(simulated(NEVER, RACE)),
        *(lambda order=order: leaderboard.require_ranking(replace(BOARD, order=order)) for order in Order),
        lambda: latency_targets.require_verdict(VERDICTS),
        lambda: leaderboard.require_tiers(LINES),
        lambda: leaderboard.require_ranking(TWO_SAMPLES),
        lambda: tiers(FEW_OF_A_TIER),
        lambda: leaderboard.require_best(COSTS),
    ],
)
def test_enough_is_enough(require: Callable[[], object]) -> None:
    """An answer with some result passes, even if other parts have none."""
    require()


def test_without_a_plan_there_is_no_baseline() -> None:
    """A comparison without a baseline is a usage error, and the hint names the option."""
    with pytest.raises(BaselineError, match="no plan") as raised:
        cells.require_baseline("")
    assert "--baseline" in raised.value.hint


def test_numbers_that_are_not_finite_are_dashes() -> None:
    """A NaN or infinite number in an answer is a dash, not a crash."""
    row = replace(DIFFERENTIALS[0], baseline_median=math.nan, shift_high=math.inf)
    page = differentials.page(ANSWER, (row,), metric=Metric.TTFT, now_at=NOW_AT)
    assert shown(page)[0]["baseline → region (ms)"].startswith(UNKNOWN)
