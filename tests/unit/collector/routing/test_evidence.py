"""Evidence from probes."""

import tracemalloc
from dataclasses import asdict, fields, replace
from math import sqrt

import numpy as np
import pytest

from isochrone_collector.analysis.probes import Kind
from isochrone_collector.routing.decision import decide
from isochrone_collector.routing.evidence import NO_OBJECTIVE, ProbeTable, evidence_of, failing_runs, suspects
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs
from isochrone_collector.routing.inputs_builder import build_inputs, comparisons_of, joint_rounds
from isochrone_collector.routing.long_run import Week
from isochrone_collector.routing.objective import eligible
from isochrone_collector.routing.switch import State
from isochrone_wire.durations import SECOND_US
from isochrone_wire.insights import Eligible
from isochrone_wire.model import Plan, Route, Slo
from testdata.routing_worlds import RULES, START_AT, probe_table, target_named
from testdata.series import SERIES

OK, FAILED, THROTTLED, SKIPPED = Kind
EVERY_US = 60 * SECOND_US
NAN = float("nan")
COLUMNS = [field.name for field in fields(ProbeTable) if field.name not in ("members", "regions")]


def seen(*rows: tuple[int, int, int, Kind, float], censored: bool = False) -> ProbeTable:
    """Rows of (member, vantage, round, kind, TTFT in milliseconds), all of one region."""
    member, vantage, rounds, kinds, ttft_ms = zip(*rows, strict=True)
    found = probe_table(
        ["a", "b"],
        ["eu"],
        member=member,
        vantage_id=vantage,
        round_at=np.array(rounds) * EVERY_US,
        kind=kinds,
        ttft_us=np.array(ttft_ms) * 1000,
    )
    return replace(found, censored=np.full(len(rows), censored))


def gathered(probes: ProbeTable, *, suspected: frozenset[int] = frozenset(), slo: Slo = NO_OBJECTIVE) -> Evidence:
    trusted = {key: run for key, run in failing_runs(probes).items() if key[1] not in suspected}
    reporting_ids = set(probes.vantage_id.tolist())
    (found,) = evidence_of(
        probes,
        [(0, 0)],
        every_us=[EVERY_US, EVERY_US],
        trusted=trusted,
        reporting_ids=reporting_ids,
        rules=RULES,
        slo=slo,
        week=Week(series=[(1, "eu")], hours=1),
    )
    return found


def course(member: int, vantage: int, kinds: str) -> list[tuple[int, int, int, Kind, float]]:
    """Rounds 0, 1, …, each + for a success, - for a failure, t for throttled, s for skipped."""
    kind_of = {"+": OK, "-": FAILED, "t": THROTTLED, "s": SKIPPED}
    return [(member, vantage, place, kind_of[sign], 350.0 if sign == "+" else NAN) for place, sign in enumerate(kinds)]


def test_all_at_once_is_each_alone() -> None:
    """The evidence of many members and regions, and the comparisons of many pairs, are those of each."""
    rng = np.random.default_rng(7)
    rows = [
        (member, vantage, place, OK if rng.random() < 0.9 else FAILED, float(rng.integers(200, 900)))
        for member in range(3)
        for vantage in range(4)
        for place in range(40)
        if rng.random() < 0.8
    ]
    probes = seen(*rows)
    probes = replace(probes, members=("a", "b", "c"), regions=("eu", "us"), region=probes.vantage_id % 2)
    every_us, runs = [EVERY_US] * 3, failing_runs(probes)
    places = [(member, region) for region in range(2) for member in range(3)]
    together, *alone = (
        evidence_of(
            probes,
            some,
            every_us=every_us,
            trusted=runs,
            reporting_ids={0, 1, 2, 3},
            rules=RULES,
            week=Week(series=[(member, str(region)) for member, region in some], hours=1),
        )
        for some in (places, *([place] for place in places))
    )
    for one, (other,) in zip(together, alone, strict=True):
        assert replace(one, n_eff=None, ttft_p50_us=None, ttft_p95_us=None, success=None) == replace(
            other, n_eff=None, ttft_p50_us=None, ttft_p95_us=None, success=None
        )
        for share in ("ttft_p50_us", "ttft_p95_us", "success"):
            assert asdict(getattr(one, share)) == pytest.approx(asdict(getattr(other, share)))
    local = probes.where(probes.region == 0)
    every, *pairs = (
        comparisons_of(local, some, slot_us=every_us, rules=RULES) for some in ([0, 1, 2], [0, 1], [0, 2], [1, 2])
    )
    for found, (expected,) in zip(every, pairs, strict=True):
        assert (found.left, found.right, found.n, found.joint) == (
            expected.left,
            expected.right,
            expected.n,
            expected.joint,
        )
        assert found.window is not None
        assert expected.window is not None
        assert asdict(found.window) == pytest.approx(asdict(expected.window))


def test_a_decision_takes_no_more_memory_than_its_probes() -> None:
    """The evidence of one member does not keep the probes of all others until that of the last one is known."""
    rows = [(member, vantage, place, OK, 300.0) for member in range(40) for vantage in range(4) for place in range(50)]
    probes = replace(seen(*rows), members=tuple(f"m{member}" for member in range(40)))
    size = sum(getattr(probes, name).nbytes for name in COLUMNS)
    runs = failing_runs(probes)
    tracemalloc.start()
    evidence_of(
        probes,
        [(member, 0) for member in range(20)],
        every_us=[EVERY_US] * 40,
        trusted=runs,
        reporting_ids=set(range(4)),
        rules=RULES,
        week=Week(series=[(member, "eu") for member in range(20)], hours=1),
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * size


@pytest.mark.parametrize(
    ("kinds", "run"), [("+++", 0), ("+--", 2), ("---", 3), ("--+", 0), ("+-t-", 2), ("+--s", 2), ("-+-", 1)]
)
def test_failures_are_counted_from_the_newest(kinds: str, run: int) -> None:
    """Throttled and skipped probes neither end a run of failures nor extend it."""
    assert failing_runs(seen(*course(0, 7, kinds))) == {(0, 7): run}


@pytest.mark.parametrize(
    ("one", "other", "providers", "suspect"),
    [
        ("+---", "+---", ("p", "q"), True),
        ("+---", "+--", ("p", "q"), True),  # its third round is still to come
        ("+---", "+++", ("p", "q"), False),
        ("+---", "+---", ("p", "p"), False),  # one provider may well be down
        ("+--", "+--", ("p", "q"), False),
    ],
)
def test_a_vantage_where_everything_fails_is_suspect(
    one: str,
    other: str,
    providers: tuple[str, str],
    suspect: bool,  # noqa: FBT001  # a column of the table
) -> None:
    """Three failures in a row, of several providers, of two thirds of what it probes."""
    runs = failing_runs(seen(*course(0, 7, one), *course(1, 7, other)))
    assert suspects(runs, providers, {7: 0}, RULES) == ({7} if suspect else set())


def test_the_control_target_clears_its_vantage() -> None:
    """A vantage is not suspect while the control target answers, whatever the others do."""
    runs = {(0, 7): 5, (1, 7): 5, (2, 7): 0}
    assert suspects(runs, "pqr", {7: 0}, RULES) == {7}
    assert suspects(runs, "pqr", {7: 0}, RULES, control=2) == set()
    assert suspects({**runs, (2, 7): 5}, "pqr", {7: 0}, RULES, control=2) == {7}


def test_providers_that_fail_everywhere_make_no_vantage_suspect() -> None:
    """Providers that fail from every region are their own fault, unless a vantage's region alone has the failures."""
    region_of = {7: 0, 8: 1, 9: 2, 10: 2}

    def runs(**failing: str) -> dict[tuple[int, int], int]:
        return {
            ("abc".index(target), vantage): 3 if target in failing.get(f"v{vantage}", "") else 0
            for vantage in region_of
            for target in "abc"
        }

    assert suspects(runs(v7="ab", v8="ab", v9="ab", v10="ab"), "pqr", region_of, RULES) == set()
    assert suspects(runs(v7="ab", v9="ab"), "pqr", region_of, RULES) == {7, 9}
    assert suspects(runs(v9="ab", v10="ab"), "pqr", region_of, RULES) == {9, 10}, "one region, not several vantages"
    assert suspects(runs(v7="abc", v8="ab", v9="ab", v10="ab"), "pqr", region_of, RULES) == {7}
    assert suspects(runs(**dict.fromkeys(("v7", "v8", "v9", "v10"), "abc")), "pqr", region_of, RULES) == {7, 8, 9, 10}


def test_a_suspect_says_nothing_of_anybody() -> None:
    """Neither failures nor successes of a suspect vantage are evidence."""
    rows = seen(*course(0, 7, "+" * 8), *course(0, 8, "+++-----"))
    assert (gathered(rows).n, gathered(rows).failing_vantages) == (11, 1)
    alone = gathered(rows, suspected=frozenset({8}))
    assert (alone.n, alone.vantages, alone.failing_vantages, alone.success and alone.success.value) == (8, 1, 0, 1.0)


LIMIT = Slo(ttft_p95_us=SECOND_US)


@pytest.mark.parametrize(
    ("kinds", "slo", "share"),
    [
        ("+" * 59 + "-" * 41, LIMIT, 0.59),
        ("+" * 59 + "t" * 41, LIMIT, 1.0),  # the capacity of an account, not a late answer
        ("+" * 59 + "s" * 41, LIMIT, 1.0),  # no request
        ("+" * 59 + "-" * 41, Slo(ttft_p95_us=349_000), 0.0),
        ("+" * 59 + "-" * 41, Slo(), None),
        ("+" * 59 + "-" * 41, Slo(answer_tokens=101, answer_p95_us=2_350_000), 0.59),
        ("+" * 59 + "-" * 41, Slo(answer_tokens=102, answer_p95_us=2_350_000), 0.0),
        ("+" * 59 + "-" * 41, Slo(min_tokens_per_second=50.0), 0.59),
        ("+" * 59 + "-" * 41, Slo(min_tokens_per_second=50.1), 0.0),
    ],
)
def test_goodput_is_the_share_of_requests_that_keep_every_limit(kinds: str, slo: Slo, share: float | None) -> None:
    """Failures count as too slow; answer and speed have limits of their own; without any there is no goodput."""
    rows = seen(*course(0, 7, kinds))
    found = gathered(replace(rows, tokens_per_second=np.full(len(rows), 50.0)), slo=slo)
    assert (found.goodput and found.goodput.value) == share
    assert (found.answer_p95_us is not None) == (slo.answer_tokens is not None)


@pytest.mark.parametrize(
    ("kinds", "throttled", "high"),
    [
        ("+" * 20, 0.0, 0.0),
        ("+" * 18 + "tt", 0.0, 0.0),  # too few to say
        ("+" * 8 + "tttt" + "+" * 6, 0.4, 0.4 + 1.645 * sqrt(0.4 * 0.6 / 10)),  # four of the ten of the short window
        ("t" * 10 + "+" * 10, 0.0, 0.0),  # long ago
        ("+" * 10 + "t" * 10, 1.0, 1.0),
    ],
)
def test_throttling_is_the_share_of_the_recent_rounds(kinds: str, throttled: float, high: float) -> None:
    """Refusals because of the rate count in the short window, which is ten rounds here, and from three on."""
    found = gathered(seen(*course(0, 7, kinds)))
    assert (found.throttled, found.throttled_high) == pytest.approx((throttled, high))


def test_an_answer_is_estimated_per_request() -> None:
    """A late first token with a fast stream is not combined with an early one and a slow stream."""
    rows = seen((0, 7, 0, OK, 100.0), (0, 7, 1, OK, 2_100.0))
    rows = replace(rows, tokens_per_second=np.array([50.0, 100.0]))
    found = gathered(rows, slo=Slo(answer_tokens=201, answer_p95_us=SECOND_US)).answer_p95_us
    assert found is not None
    assert found.value == 4_100_000.0


@pytest.mark.parametrize("speed", [0.0, 5e-324])
def test_an_answer_that_would_never_end_is_unknown(speed: float) -> None:
    """The inputs of a decision are stored as JSON, which has no infinity."""
    rows = seen(*course(0, 7, "++++"))
    rows = replace(rows, tokens_per_second=np.array([50.0, 50.0, speed, speed]))
    found = gathered(rows, slo=Slo(answer_tokens=201, answer_p95_us=SECOND_US))
    assert found.answer_p95_us is not None
    assert found.answer_p95_us.value == 350_000 + 4 * SECOND_US


def test_probes_that_began_late_are_not_compared() -> None:
    """A probe that waited for a slot is evidence of its member, but not of its round."""
    rows = seen(*course(0, 7, "+++"), *course(1, 7, "+++"))
    found = inputs_at(replace(rows, comparable=np.arange(6) != 1), at_round=3)
    assert (found.of("a").n, found.against("a", "b").n) == (3, 2)


@pytest.mark.parametrize(("kinds", "coverage"), [("++++", 1.0), ("+-+-", 1.0), ("+s+s", 0.5), ("+sss", 0.25)])
def test_coverage_is_the_share_of_rounds_in_which_something_was_sent(kinds: str, coverage: float) -> None:
    """Failed probes count as sent; probes skipped by a budget do not, and are not current evidence."""
    assert gathered(seen(*course(0, 7, kinds))).coverage == coverage


@pytest.mark.parametrize(
    ("rounds", "coverage"),
    [
        ([*range(0, 600, 6), *range(600, 610)], 1.0),  # probed six times as often since then
        ([*range(60), *range(60, 600, 6)], 1.0),  # probed less often since then
        ([*range(10), *range(40, 50)], 0.4),
        ([0, 1, 2, 5, 6, 7, 8, 9], 0.8),
        ([0], 1.0),
    ],
)
def test_coverage_goes_by_the_interval_of_its_time(rounds: list[int], coverage: float) -> None:
    """Rounds of before a change of the interval were not due by the new one; a gap among them is a gap."""
    assert gathered(seen(*[(0, 7, place, OK, 350.0) for place in rounds])).coverage == coverage


def test_coverage_counts_what_is_due_since_the_last_round() -> None:
    """Coverage counts what is due while the vantage has rounds; what is only planned makes nothing fresher."""
    assert gathered(seen(*course(0, 7, "+" * 5), *course(1, 7, "+" * 20))).coverage == 0.25
    assert gathered(seen(*course(0, 7, "++"), *course(0, 8, "+" * 9), *course(1, 8, "+" * 9))).coverage == 1.0
    assert gathered(seen(*course(0, 7, "++ss"))).newest_at == EVERY_US


def inputs_at(probes: ProbeTable, *, at_round: float, every_us: int = EVERY_US) -> Inputs:
    """The inputs of a route over a and b, of two providers, in the region "eu" after so many rounds."""
    targets = tuple(replace(target_named(name), every_us=every_us) for name in "ab")
    plan = Plan(version=1, baseline="eu", targets=targets, routes=(Route(name="r", members=("a", "b")),))
    (found,) = build_inputs(plan.routes[0], plan, probes, regions=["eu"], at=int(at_round * EVERY_US))
    return found


def test_independent_probes_are_of_those_that_are_counted() -> None:
    """Timeouts rank in the median, but `n` counts first tokens, and so does `n_eff`."""
    rows = seen(*((0, 7, place, FAILED if place % 10 == 9 else OK, 300 + place % 7) for place in range(60)))
    found = gathered(replace(rows, censored=rows.kind == FAILED))
    assert (found.n, found.timed) == (54, 60)
    assert found.n_eff is not None
    assert found.n_eff <= 54 / 1.5


def test_a_round_of_the_future_is_left_out() -> None:
    """Probes from a clock that is ahead do not make a table fresher, and are left out until their time."""
    rows = seen(*course(0, 7, "+++"), *course(1, 7, "+++++++"))
    found = inputs_at(rows, at_round=4)
    assert [(one.n, one.newest_at) for one in found.evidence] == [(3, 2 * EVERY_US), (5, 4 * EVERY_US)]


def test_a_vantage_that_is_gone_does_not_outvote_who_still_reports() -> None:
    """A member fails if it fails for the only vantage left; the samples of one that is gone stay."""
    gone = [row for member in (0, 1) for vantage in (8, 9) for row in course(member, vantage, "+" * 20)]
    left = [*course(0, 7, "+" * 20 + "-" * 8), *course(1, 7, "+" * 28)]
    one, other = inputs_at(seen(*gone, *left), at_round=27.5).evidence
    assert (one.n, one.vantages, one.failing_here, one.fails_here) == (60, 1, 1, True)
    assert (other.vantages, other.fails_here) == (1, False)


def test_suspects_that_are_gone_freeze_nothing() -> None:
    """Suspect vantages that are gone freeze nothing; rounds rarer than an epoch are no silence."""
    suspect = [row for member in (0, 1) for vantage in (8, 9) for row in course(member, vantage, "+" * 10 + "---")]
    rows = seen(*suspect, *course(0, 7, "+" * 30), *course(1, 7, "+" * 30))
    during, later = inputs_at(rows, at_round=13), inputs_at(rows, at_round=19)
    assert (during.suspects, during.vantages, during.suspects_here, during.vantages_here) == (2, 3, 2, 3)
    assert (later.suspects, later.vantages, later.suspects_here, later.vantages_here) == (0, 1, 0, 1)
    assert {one.success and one.success.value for one in later.evidence} == {1.0}
    rows = replace(seen(*course(0, 7, "+--"), *course(1, 7, "+++")), round_at=np.array([0, 60, 120] * 2) * EVERY_US)
    assert inputs_at(rows, at_round=170, every_us=60 * EVERY_US).vantages == 1


def test_pairs_are_of_one_vantage_and_slot() -> None:
    """Pairs are of one vantage and slot; limits compare only with values below them, and nothing is `None`."""
    rows = seen((0, 7, 0, OK, 300), (0, 7, 1, OK, 900), (1, 7, 0, OK, 200), (0, 8, 0, OK, 500), (1, 9, 0, OK, 100))
    (found,) = comparisons_of(rows, [0, 1], slot_us=[EVERY_US, 2 * EVERY_US], rules=RULES)
    assert (found.n, found.window and found.window.estimate) == (1, 100_000.0)
    a, b = (10_000, 50_000, 300, 10_000), (40_000, 200, 300, 12_000)
    rows = seen(*((0, 7, n, OK, ms) for n, ms in enumerate(a)), *((1, 7, n, OK, ms) for n, ms in enumerate(b)))
    limits = replace(rows, censored=np.array([True, True, False, True, True, False, False, False]))
    (found,) = comparisons_of(limits, [0, 1], slot_us=[EVERY_US] * 2, rules=RULES)
    assert found.window is not None
    assert (found.n, found.window.estimate) == (4, 24_900_000.0)
    (found,) = comparisons_of(seen(*course(0, 7, "--")), [0, 1], slot_us=[EVERY_US] * 2, rules=RULES)
    assert found == Comparison(left="a", right="b")


def test_slow_rounds_are_counted_where_both_were_probed_at_once() -> None:
    """Members that are probed in other rounds are compared in slots, but nothing is known of common stalls."""
    together = [(member, 7, place, OK, 9000.0 if place > 18 else 300.0) for member in (0, 1) for place in range(20)]
    apart = replace(seen(*together), round_at=np.r_[2 * np.arange(20), 2 * np.arange(20) + 1] * EVERY_US // 2)
    for rows, joint, both in ((seen(*together), 20, 1), (apart, 0, 0)):
        (found,) = comparisons_of(rows, [0, 1], slot_us=[EVERY_US] * 2, rules=RULES)
        assert (found.n, found.joint, found.slow_both) == (20, joint, both)


def test_joint_rounds_are_of_one_vantage_and_instant() -> None:
    """A row per vantage and round: of a burst the median, of a timeout at least the member's largest value."""
    burst = [(0, 7, 0, OK, ms) for ms in (100.0, 300.0, 500.0)]
    rows = seen(*burst, (1, 7, 0, OK, 200.0), (1, 8, 0, OK, 700.0), (0, 7, 1, OK, 900.0), (1, 7, 1, FAILED, NAN))
    late = seen((1, 7, 2, FAILED, 400.0), (0, 7, 2, OK, 100.0), censored=True)
    late = replace(late, censored=np.array([True, False]))
    both = ProbeTable(
        members=("a", "b"),
        regions=("eu",),
        **{name: np.concatenate([getattr(rows, name), getattr(late, name)]) for name in COLUMNS},
    )
    found = joint_rounds(both, [0, 1])
    assert found.round_at == (0, 0, EVERY_US, 2 * EVERY_US)
    rounds_at, ttft_us = found.of("a", "b")
    assert rounds_at.tolist() == [0, 2 * EVERY_US]
    assert ttft_us == pytest.approx(np.array([[300e3, 200e3], [100e3, 700e3]]), rel=0.01)


def test_thousands_of_vantages_fit_64_bits() -> None:
    """Rounds of today keep their instants with more vantages than 2^63 microseconds have room for."""
    vantages = 6_000
    rows = seen(*((member, vantage, 0, OK, 100.0 * (member + 1)) for member in (0, 1) for vantage in range(vantages)))
    rows = replace(rows, round_at=np.full(2 * vantages, START_AT))
    assert set(joint_rounds(rows, [0, 1]).round_at) == {START_AT}
    (found,) = comparisons_of(rows, [0, 1], slot_us=[1, 1], rules=RULES)
    assert (found.n, found.joint, found.window and found.window.estimate) == (vantages, vantages, -100_000.0)


def difficult(name: str) -> ProbeTable:
    """Member a with this series, and member b with a constant one; a request without a first token waited a minute."""
    own = SERIES[name]
    rows = [(0, 7, place, FAILED if np.isnan(ms) else OK, ms) for place, ms in enumerate(own.tolist())]
    known = seen(*rows, *((1, 7, place, OK, 100.0) for place in range(max(len(own), 1))))
    lost = known.kind == FAILED
    return replace(known, ttft_us=np.where(lost, 6e7, known.ttft_us), censored=lost)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("none", Eligible.UNKNOWN),
        ("one round", Eligible.UNKNOWN),
        ("23 rounds", Eligible.UNKNOWN),
        ("constant", Eligible.YES),
        ("ties", Eligible.NO),
        ("a change five rounds ago", Eligible.UNKNOWN),
        ("day and night", Eligible.YES),
        ("negative correlation", Eligible.YES),
        ("half of the rounds censored", Eligible.NO),
        ("all rounds censored", Eligible.NO),
    ],
)
def test_bad_input_has_an_honest_table(name: str, verdict: Eligible) -> None:
    """Whatever the rounds are, quantiles lie within their bounds, and a member that mostly hangs is not first."""
    targets = tuple(replace(target_named(name), every_us=EVERY_US) for name in "ab")
    route = Route(name="r", members=("a", "b"), slo=Slo(ttft_p95_us=150_000))
    plan = Plan(version=1, baseline="eu", targets=targets, routes=(route,))
    probes = difficult(name)
    (inputs,) = build_inputs(route, plan, probes, regions=["eu"], at=int(probes.round_at.max()) + 1)
    decision = decide(inputs, State())
    assert decision.sentence
    for own in inputs.evidence:
        assert own.n_eff is None or own.n_eff <= own.n
        assert own.success is None or own.success.low <= own.success.value <= own.success.high
        for found in filter(None, (own.ttft_p50_us, own.ttft_p95_us)):
            assert found.low is None or found.low <= found.value
            assert found.high is None or found.value <= found.high
    assert eligible(inputs.of("a"), route.slo) is verdict
    first = next((entry.target for entry in decision.entries if entry.rank == 1), None)
    assert first != "a" or verdict is not Eligible.NO


def test_a_silent_region_has_no_table() -> None:
    """A region without a probe has no table; where all vantages fell silent, it is empty with the reason."""
    probes = difficult("constant")
    targets = tuple(replace(target_named(name), every_us=EVERY_US) for name in "ab")
    plan = Plan(version=1, baseline="eu", targets=targets, routes=(Route(name="r", members=("a", "b")),))
    assert list(build_inputs(plan.routes[0], plan, probes, regions=["us"], at=0)) == []
    late = int(probes.round_at.max()) + RULES.window_us * 10
    (inputs,) = build_inputs(plan.routes[0], plan, probes, regions=["eu"], at=late)
    decision = decide(inputs, State())
    assert (decision.entries, [one.reason for one in decision.excluded]) == ((), ["0 of 6 samples needed"] * 2)
