"""The page of route tables states why a member does not meet its objective, and why the members have this order."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_client.pages import routes as route_pages
from isochrone_client.pages.routes import objective_reason
from isochrone_client.render import renderer
from isochrone_client.render.page import RenderOptions
from isochrone_collector.analysis.goodput import share_interval
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.routing.inputs import Evidence
from isochrone_collector.routing.objective import eligible
from isochrone_wire.answers import Quantile
from isochrone_wire.durations import SECOND_US
from isochrone_wire.insights import Eligible
from isochrone_wire.model import Slo
from isochrone_wire.routes import ChangeKind, Hold, RouteEntry, RouteTable
from testdata.insights import NOW_AT
from testdata.routes import CHAT

SLO = Slo(name="chat", ttft_p95_us=1_000_000, min_success=0.99)
FASTER = Quantile(value=150_000, low=148_000, high=152_000)
REFRESHED = replace(CHAT, change=ChangeKind.EVIDENCE)
FAST = Quantile(value=300_000, low=280_000, high=366_000)


@pytest.mark.parametrize(
    ("p95", "succeeded", "sent", "reason"),
    [
        (FAST, 400, 400, ""),
        (FAST, 70, 70, "success at least 94.8 % after 70 requests, min_success is 99.0 %: more requests decide it"),
        (FAST, 50, 70, "success at most 80.7 %, min_success is 99.0 %"),
        (FAST, 0, 0, "success unknown, no request; min_success is 99.0 %"),
        (None, 400, 400, "p95 unknown, no sample; the limit is 1000 ms"),
        (Quantile(value=9e5, low=8e5, high=1.2e6), 400, 400, "p95 800 … 1200 ms, the limit is 1000 ms"),
        (Quantile(value=9e5, low=8e5), 400, 400, "p95 at least 800 ms, the limit is 1000 ms"),
        (Quantile(value=2e6, low=1.5e6, high=3e6), 400, 400, "p95 at least 1500 ms, the limit is 1000 ms"),
    ],
)
def test_the_reason_names_the_part_not_met(p95: Quantile | None, succeeded: int, sent: int, reason: str) -> None:
    """Latency within the limit is no reason; an undecided or missed success is one, with its bound and the minimum."""
    entry = replace(CHAT.entries[0], ttft_p95_us=p95, success=wilson(succeeded, sent), goodput=None)
    assert objective_reason(entry, SLO) == reason


@pytest.mark.parametrize(
    ("good", "slo", "reason"),
    [
        (400, SLO, ""),
        (
            380,
            replace(SLO, ttft_p95_us=9_000),
            "95.0 % of 400 requests in time [92.4 … 96.7], 95.0 % needed; the limit is 9.0 ms: more requests decide it",
        ),
        (236, SLO, "59.0 % of 400 requests in time [54.1 … 63.7], 95.0 % needed; the limit is 1000 ms"),
        (
            40,
            Slo(min_goodput=0.9, answer_tokens=500, answer_p95_us=8_000_000, min_tokens_per_second=30.0),
            "10.0 % of 400 requests in time [7.4 … 13.3], 90.0 % needed; 500 tokens in 8000 ms, at 30 tokens/s or more",
        ),
    ],
)
def test_the_reason_has_the_share_in_time(good: int, slo: Slo, reason: str) -> None:
    """With goodput, the reason has the share in time with its interval, the share needed and the limits."""
    entry = replace(CHAT.entries[0], success=wilson(4000, 4000), goodput=wilson(good, 400))
    assert objective_reason(entry, slo) == reason


quantiles = st.builds(
    lambda low, width: Quantile(value=low + width / 2, low=low, high=low + width),
    st.integers(0, 2_000_000),
    st.integers(0, 1_000_000),
)
successes = st.integers(1, 500).flatmap(lambda sent: st.builds(wilson, st.integers(0, sent), st.just(sent)))
objectives = st.builds(
    Slo, ttft_p95_us=st.none() | st.just(1_000_000), min_success=st.sampled_from([0.0, 0.5, 0.95, 0.99])
)


requests = st.integers(1, 500).flatmap(lambda sent: st.tuples(st.integers(0, sent), st.just(sent)))


@given(p95=st.none() | quantiles, success=st.none() | successes, slo=objectives, in_time=st.none() | requests)
def test_there_is_a_reason_unless_the_verdict_is_yes(
    p95: Quantile | None, success: object, slo: Slo, in_time: tuple[int, int] | None
) -> None:
    """The page and the collector's decision agree: no reason exactly if the verdict is yes."""
    good, n = in_time or (0, 1)
    evidence = Evidence(
        target="a",
        ttft_p95_us=p95,
        success=success,  # type: ignore[arg-type]  # a proportion or None
        goodput=share_interval(good, n, n_eff=n) if in_time and slo.ttft_p95_us else None,
        goodput_n_eff=n,
    )
    entry = replace(CHAT.entries[0], ttft_p95_us=p95, success=evidence.success, goodput=evidence.goodput)
    assert (objective_reason(entry, slo) == "") == (eligible(evidence, slo) is Eligible.YES)


def test_the_table_has_the_reason_below() -> None:
    """A verdict other than yes has a mark, and the reason follows the table."""
    entry = replace(CHAT.entries[0], ttft_p95_us=FAST, success=wilson(70, 70), slo_eligible=Eligible.MAYBE)
    page = route_pages.page((replace(CHAT, entries=(entry,), slo=SLO),), now_at=NOW_AT)
    shown = renderer("table").whole(page, RenderOptions())
    assert "maybe [1]" in shown
    assert "[1] success at least 94.8 % after 70 requests" in shown


def table_with(**changes: object) -> RouteTable:
    first, second, third = REFRESHED.entries
    return replace(REFRESHED, entries=(first, replace(second, **changes), third))  # type: ignore[arg-type]  # any field


def weights(table: RouteTable) -> list[str]:
    page = route_pages.page((table,), now_at=NOW_AT)
    [shown] = page.tables()
    return [cells[1] for cells in shown.cells]


def test_arrows_show_weights_that_move() -> None:
    """During a switch the weight of the first choice rises and the other one falls, and a note explains the arrows."""
    assert weights(REFRESHED) == ["↑ 75", "↓ 25", "0"]
    assert any("by a quarter per epoch" in note for note in route_pages.page((REFRESHED,), now_at=NOW_AT).notes)


def test_settled_weights_have_no_arrow() -> None:
    """Members that share the first rank share the weight; such a table has no arrows and no note."""

    def entry(number: int, rank: int, weight: float) -> RouteEntry:
        return replace(REFRESHED.entries[number], rank=rank, weight=weight)

    table = replace(REFRESHED, entries=(entry(0, 1, 0.5), entry(1, 1, 0.5), entry(2, 3, 0.0)))
    assert weights(table) == ["50", "50", "0"]
    assert not any("↑" in note for note in route_pages.page((table,), now_at=NOW_AT).notes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"slo_in_window": Eligible.MAYBE}, "it is more certain to meet the objective"),
        (
            {"slo_in_window": Eligible.YES, "cost": 240.0},
            "with p95, price and failures it counts as 198 ms, the other as 240 ms",
        ),
        (
            {"slo_in_window": Eligible.YES, "cost": 160.0},
            "it became the first choice 27 s ago, by newer rounds than most of the median's, and no rule switches back",
        ),
    ],
)
def test_a_first_choice_with_a_higher_median_has_a_reason(changes: dict[str, object], reason: str) -> None:
    """If another member has a lower median, a note states why it is not the first choice."""
    table = table_with(ttft_p50_us=FASTER, **changes)
    first = replace(table.entries[0], hold=Hold(state="active", since_at=NOW_AT - 27 * SECOND_US))
    notes = route_pages.page((replace(table, entries=(first, *table.entries[1:])),), now_at=NOW_AT).notes
    [note] = [note for note in notes if "whose median is lower" in note]
    assert "deepseek/deepseek-v4-flash ranks before qwen/qwen3-32b" in note
    assert reason in note


def test_the_fastest_first_needs_no_reason() -> None:
    """A table in the order of its medians has no such note."""
    assert not any("whose median is lower" in note for note in route_pages.page((REFRESHED,), now_at=NOW_AT).notes)
