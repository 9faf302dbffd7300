"""Pages: what is shown, in which order, and when an answer is none."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

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
    stored,
)
from isochrone_client.errors import BaselineError, InsufficientError
from isochrone_client.formats import UNKNOWN
from isochrone_client.pages import cells, differentials, fleet, leaderboard, samples
from isochrone_client.pages.cells import TOO_FEW, Footnotes
from isochrone_client.render.page import Page, Row
from isochrone_wire.answers import Absence, Decision, Differential, DifferentialList, Metric, Proportion, Quantile, Side
from isochrone_wire.fleet import CoverageList, SpendList, TargetList, VantageList
from isochrone_wire.insights import Leaderboard
from isochrone_wire.model import SECOND_US, Budget, Outcome, Quality
from isochrone_wire.queries.differential_order import DECIDED, select_rows

ANSWER = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)
UNDECIDED = replace(DIFFERENTIALS[1], decision=Decision.UNDECIDED, reason="3 of 24 rounds needed")


def shown(page: Page[Row]) -> list[dict[str, str]]:
    """The cells of each row by the title of the column."""
    titles = [column.title for column in page.columns]
    return [dict(zip(titles, cells, strict=True)) for table in page.tables() for cells in table.cells]


def pair(target: str, shift: float | None, *, region: str = "a", metric: Metric = Metric.TTFT) -> Differential:
    """A differential with given sort keys."""
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


def test_a_shift_without_an_interval_is_not_said() -> None:
    """A number without an interval is a dash for people; programs get the value of the wire."""
    row = replace(DIFFERENTIALS[0], shift_low=None)
    page = differentials.page(ANSWER, (row,), metric=Metric.TTFT, now_at=NOW_AT)
    assert shown(page)[0]["difference (ms)"] == UNKNOWN
    assert shown(page)[0]["relative (%)"] == UNKNOWN
    assert page.record(row)["shift"] == 191_250.0


def footnotes_of(page: Page[Row]) -> tuple[str, ...]:
    """The numbered notes."""
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
    """Wherever the server's part is shown, a note states what it contains."""
    with_server = differentials.page(ANSWER, DIFFERENTIALS, metric=Metric.TTFT, now_at=NOW_AT)
    without = differentials.page(ANSWER, DIFFERENTIALS[2:], metric=Metric.TTFT, now_at=NOW_AT)
    notes = [[note for note in page.notes if note.startswith("server: ")] for page in (with_server, without)]
    assert notes == [
        ["server: everything behind the address that was dialled, from the provider's edge to the model"],
        [],
    ]


def test_the_reason_stands_below() -> None:
    """An undecided differential has a footnote with its reason, and equal reasons share one."""
    rows = (UNDECIDED, DIFFERENTIALS[1], replace(UNDECIDED, reason="coverage 40 %"), UNDECIDED)
    page = differentials.page(ANSWER, rows, metric=Metric.TTFT, now_at=NOW_AT)
    assert [row["decision"] for row in shown(page)] == ["undecided [1]", "faster", "undecided [2]", "undecided [1]"]
    assert footnotes_of(page) == ("[1] 3 of 24 rounds needed", "[2] coverage 40 %")


HEALTHY = Side(coverage=0.95, failures=Proportion(value=0.01, low=0.0, high=0.02, n=900))


@pytest.mark.parametrize(
    ("row", "remark"),
    [
        (replace(DIFFERENTIALS[1], baseline_side=HEALTHY, region_side=HEALTHY), ""),
        (replace(DIFFERENTIALS[1], baseline_side=replace(HEALTHY, coverage=0.42)), "us-east-2 has 42 % of its rounds"),
        (replace(DIFFERENTIALS[1], baseline_side=Side(n=7, coverage=7 / 8)), ""),
        (replace(DIFFERENTIALS[1], baseline_side=Side(n=14, coverage=14 / 16)), "us-east-2 has 88 % of its rounds"),
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


def test_a_decision_after_a_step_has_its_beginning() -> None:
    """The decision names the beginning of the present level, and a footnote the step with both levels."""
    page = differentials.page(ANSWER, (STEPPED,), metric=Metric.TTFT, now_at=NOW_AT)
    assert shown(page)[0]["decision"] == "slower since 07:58:48 [1]"
    note = "+400 ms since 07:58:48: the difference is +435 ms in 12 rounds, and was +35 ms in 19 rounds before"
    assert note in page.notes[0]


def test_only_latencies_have_a_network_and_a_server() -> None:
    """The split into network and server is shown for durations that have both, and for nothing else."""
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


@pytest.mark.parametrize(
    ("quantile", "text"),
    [
        (Quantile(value=260_300, low=251_000, high=270_000), "260"),
        (Quantile(value=260_300), UNKNOWN),
        (Quantile(value=260_300, low=251_000), UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_a_percentile_needs_its_interval(quantile: Quantile | None, text: str) -> None:
    """If n is too small for an interval, the percentile is a dash and a note has the reason."""
    page = leaderboard.page(Leaderboard(window=WINDOW, standings=(replace(STANDINGS[0], ttft_p95_us=quantile),)))
    assert shown(page)[0]["ttft p95 (ms)"] == text
    assert (TOO_FEW in page.notes) == (text == UNKNOWN)


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


def test_what_went_well_comes_first() -> None:
    """Outcomes are listed with ok first, then by how often they happened."""
    page = fleet.coverage_page(CoverageList(window=WINDOW, coverage=COVERAGE), now_at=NOW_AT)
    assert [row["outcomes"] for row in shown(page)] == [UNKNOWN, "ok 1430, throttled 6, timed_out 3"]
    assert [row["recorded (%)"] for row in shown(page)] == ["0.0", "99.9"]


def test_a_sample_says_what_is_wrong_with_it() -> None:
    """A failed sample shows its HTTP status and error, a flagged one its flags, and clean ones nothing."""
    rows = (
        stored(2, outcome=Outcome.HTTP_ERROR, http_status=529, error="overloaded"),
        stored(1, quality=Quality.LAGGED | Quality.BUFFERED),
        stored(0),
    )
    page = samples.page(rows, window=WINDOW, now_at=NOW_AT)
    assert [row["outcome"] for row in shown(page)] == ["http_error 529 [1]", "ok [2]", "ok"]
    assert page.notes == ("[1] overloaded", "[2] lagged, buffered")


def test_samples_read_like_a_log() -> None:
    """The newest sample is the last, whatever the order of the answer."""
    page = samples.page(SAMPLES, window=WINDOW, now_at=NOW_AT)
    assert [row.sample.round_at for row in page.rows] == sorted(row.sample.round_at for row in SAMPLES)


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


NOTHING = DifferentialList(window=WINDOW)
NOTHING_AT_ALL = replace(NOTHING, missing=(Absence(region="us-east-2", sentence="no samples from us-east-2"),))
ONE_UNDECIDED = replace(ANSWER, differentials=(UNDECIDED,))
TWO_UNDECIDED = replace(ANSWER, differentials=(UNDECIDED, UNDECIDED))
EMPTY_LEADERBOARD = Leaderboard(window=WINDOW)
NO_MEDIAN = Leaderboard(window=WINDOW, standings=(replace(STANDINGS[0], n=4, ttft_p50_us=Quantile(value=1.0)),))
NOBODY = VantageList(plan_version=0, answered_at=NOW_AT)
NONE_ONLINE = replace(VANTAGES, vantages=VANTAGES.vantages[1:])
NOTHING_RECORDED = CoverageList(window=WINDOW, coverage=COVERAGE[1:])


@pytest.mark.parametrize(
    ("require", "sentence", "hint"),
    [
        (
            lambda: differentials.require_decision(NOTHING, (), baseline="us-east-2", only=None),
            "no samples from any region but us-east-2 between 2026-11-20 08:00 and 2026-11-21 08:00 UTC",
            "isochrone coverage",
        ),
        (
            lambda: differentials.require_decision(NOTHING_AT_ALL, (), baseline="us-east-2", only=None),
            "no samples between 2026-11-20 08:00 and 2026-11-21 08:00 UTC",
            "isochrone coverage",
        ),
        (
            lambda: differentials.require_decision(ANSWER, (), baseline="us-east-2", only="equivalent"),
            "none of 3 differentials is equivalent",
            "--only",
        ),
        (
            lambda: differentials.require_decision(TWO_UNDECIDED, (UNDECIDED,) * 2, baseline="us-east-2", only=None),
            "nothing is decided: all 2 differentials are undecided",
            "--window",
        ),
        (
            lambda: differentials.require_decision(ONE_UNDECIDED, (UNDECIDED,), baseline="us-east-2", only=None),
            "nothing is decided: the only differential is undecided",
            "--window",
        ),
        (lambda: leaderboard.require_ranking(EMPTY_LEADERBOARD), "no samples between", "isochrone coverage"),
        (lambda: leaderboard.require_ranking(NO_MEDIAN), "4 of 16 needed", "isochrone samples"),
        (lambda: fleet.require_targets(TargetList(plan_version=0, baseline="")), "no plan", "apply"),
        (lambda: fleet.require_targets(TargetList(plan_version=2, baseline="a")), "plan 2 has no targets", "apply"),
        (lambda: fleet.require_rounds(CoverageList(window=WINDOW)), "no round was planned", "isochrone vantages"),
        (lambda: fleet.require_rounds(NOTHING_RECORDED), "none of 1440 planned rounds", "is an agent running"),
        (lambda: samples.require_samples((), window=WINDOW), "no samples between", "isochrone coverage"),
        (lambda: fleet.require_online(NOBODY), "no vantage is known yet", "vantage add"),
        (lambda: fleet.require_online(NONE_ONLINE), "none of 2 vantages is online", "isochrone-agent doctor"),
        (lambda: fleet.require_spend(SpendList()), "there is no spend", "isochrone vantages"),
    ],
)  # fmt: skip
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
        lambda: differentials.require_decision(ANSWER, DIFFERENTIALS, baseline="us-east-2", only=None),
        lambda: differentials.require_decision(ANSWER, DIFFERENTIALS[2:], baseline="us-east-2", only="undecided"),
        lambda: leaderboard.require_ranking(Leaderboard(window=WINDOW, standings=STANDINGS)),
        lambda: fleet.require_targets(TARGETS),
        lambda: fleet.require_rounds(CoverageList(window=WINDOW, coverage=COVERAGE)),
        lambda: samples.require_samples(SAMPLES, window=WINDOW),
        lambda: fleet.require_online(VANTAGES),
        lambda: fleet.require_spend(SpendList(spend=SPEND)),
    ],
)
def test_enough_is_enough(require: Callable[[], None]) -> None:
    """An answer with some result passes, even if other parts have none."""
    require()


def test_the_plan_names_the_baseline() -> None:
    """Without --baseline, the baseline is the plan's region."""
    assert cells.require_baseline(TARGETS.baseline) == "us-east-2"


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
