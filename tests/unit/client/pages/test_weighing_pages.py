"""The ranking pages: leaderboards of every order, latency targets, price tiers and region costs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fixtures.fake_collector import STANDINGS, WINDOW
from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN
from isochrone_client.pages import latency_targets, leaderboard
from isochrone_client.render import renderer
from isochrone_client.render.page import Page, RenderOptions, Row
from isochrone_wire.answers import Decision, Metric, Order, Quantile, Source
from isochrone_wire.insights import Eligible, LatencyBudgetList, Leaderboard, RegionCostList, TierList
from isochrone_wire.json_format import minute
from testdata.insights import LATENCY_BUDGETS, REGION_COSTS, TIERS

BOARD = Leaderboard(window=WINDOW, standings=STANDINGS)
VERDICTS = LatencyBudgetList(window=WINDOW, budgets=LATENCY_BUDGETS)
COSTS = RegionCostList(window=WINDOW, costs=REGION_COSTS)
LINES = TierList(window=WINDOW, tiers=TIERS)
WITHOUT_INTERVAL = Quantile(value=1.0)


def shown(page: Page[Row]) -> list[dict[str, str]]:
    """The cells of each row by the title of the column."""
    titles = [column.title for column in page.columns]
    return [dict(zip(titles, cells, strict=True)) for table in page.tables() for cells in table.cells]


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


def test_outcomes_stand_beside_success() -> None:
    """Throttled and skipped rounds are shown beside the failures they are not among."""
    row = shown(leaderboard.page(replace(BOARD, order=Order.SUCCESS)))[0]
    assert [row[name] for name in ("interval (95 %, %)", "sent ≈ independent", "failed", "throttled", "skipped")] == [
        "98.8 … 99.7",
        "1440 ≈ 902",
        "9",
        "6",
        "2",
    ]


def test_free_is_not_unknown() -> None:
    """The speed per price of a free target is `free`; without a price it is a dash."""
    rows = (replace(STANDINGS[0], usd_per_m_output=0.0, tokens_per_second_per_usd=None), STANDINGS[1])
    page = leaderboard.page(Leaderboard(window=WINDOW, standings=rows, order=Order.TOKENS_PER_USD))
    assert [row["speed (per $/M)"] for row in shown(page)] == ["free", UNKNOWN]


def test_summaries_are_told() -> None:
    """A leaderboard from summaries has a note with the error of its percentiles."""
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
    """With one use there is room for the share in time and the percentile, with their intervals, and for n."""
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


def test_hours_have_a_row_each() -> None:
    """By hour of the day, each target has a row per hour, in their order."""
    rows = tuple(replace(LATENCY_BUDGETS[0], hour=hour) for hour in (23, 0, 7))
    page = latency_targets.page(replace(VERDICTS, budgets=rows))
    assert [row["hour (UTC)"] for row in shown(page)] == ["00", "07", "23"]
    assert not any("hour (UTC)" in row for row in shown(latency_targets.page(VERDICTS)))


def test_a_limit_names_what_it_is_on() -> None:
    """The length of the answer and the floor on speed are beside the limit."""
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


def test_the_best_region_adds_nothing() -> None:
    """The best region is marked, the others show how much slower they are, or a dash with a reason."""
    rows = shown(leaderboard.best_page(COSTS, metric=Metric.TTFT))
    assert [(row["slower by (ms)"], row["decision"]) for row in rows] == [
        ("0", "best"),
        ("191", "slower"),
        (UNKNOWN, "undecided [1]"),
    ]


def test_a_change_that_cut_the_window_is_stated_once_per_provider() -> None:
    """The best region's line states since when rounds count; the others' lines only their own reason."""
    since_at = WINDOW.from_at + 60_000_000
    cut = replace(COSTS, costs=tuple(replace(row, since_at=since_at) for row in REGION_COSTS))
    page = leaderboard.best_page(cut, metric=Metric.TTFT)
    assert [row["decision"] for row in shown(page)] == ["best [1]", "slower", "undecided [2]"]
    assert page.notes[0] == f"[1] only rounds since a change at {minute(since_at)}"


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


UNDECIDED = tuple(replace(row, decision=Decision.UNDECIDED) for row in REGION_COSTS)
ALL_UNKNOWN = tuple(replace(row, eligible=Eligible.UNKNOWN, n=3, reason="3 of 59 samples") for row in LATENCY_BUDGETS)
UNPRICED = tuple(replace(row, usd_per_m_output=None) for row in STANDINGS)


@pytest.mark.parametrize(
    ("require", "sentence", "hint"),
    [
        (
            lambda: leaderboard.require_ranking(replace(BOARD, order=Order.PRICE, standings=UNPRICED)),
            "no target has a price",
            "plan",
        ),
        (
            lambda: leaderboard.require_ranking(
                replace(BOARD, order=Order.E2E, standings=(replace(STANDINGS[0], n=2, e2e_p50_us=WITHOUT_INTERVAL),))
            ),
            "2 of 16 needed",
            "isochrone samples",
        ),
        (
            lambda: latency_targets.require_verdict(replace(VERDICTS, budgets=())),
            "no samples between",
            "isochrone coverage",
        ),
        (
            lambda: latency_targets.require_verdict(replace(VERDICTS, budgets=ALL_UNKNOWN)),
            "3 of 59 samples",
            "--window",
        ),
        (lambda: leaderboard.require_tiers(replace(LINES, tiers=())), "no samples between", "isochrone coverage"),
        (
            lambda: leaderboard.require_tiers(replace(LINES, tiers=(replace(TIERS[0], usd_per_m_output=None),))),
            "no target has a price",
            "plan",
        ),
        (
            lambda: leaderboard.require_tiers(
                replace(LINES, tiers=(replace(TIERS[0], n=3, ttft_p50_us=WITHOUT_INTERVAL),))
            ),
            "3 of 16 needed",
            "isochrone samples",
        ),
        (lambda: leaderboard.require_best(replace(COSTS, costs=())), "no samples between", "isochrone coverage"),
        (lambda: leaderboard.require_best(replace(COSTS, costs=UNDECIDED)), "nothing is decided", "--window"),
        (
            lambda: leaderboard.require_best(replace(COSTS, costs=UNDECIDED[:1])),
            "nothing is decided",
            "isochrone-collector vantage add",
        ),
    ],
)
def test_too_little_data_is_an_error(require: Callable[[], None], sentence: str, hint: str) -> None:
    """An answer without a result is an error with the reason and a hint."""
    with pytest.raises(InsufficientError) as raised:
        require()
    assert sentence in str(raised.value)
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    "require",
    [
        *(lambda order=order: leaderboard.require_ranking(replace(BOARD, order=order)) for order in Order),
        lambda: latency_targets.require_verdict(VERDICTS),
        lambda: leaderboard.require_tiers(LINES),
        lambda: leaderboard.require_best(COSTS),
    ],
)
def test_something_is_enough(require: Callable[[], None]) -> None:
    """One row with a result is enough."""
    require()
