"""Replay of policies: cases worked out by hand, and properties for any recording."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from isochrone_collector.analysis.simulation import (
    DEFAULTS,
    LOOKBACK_ROUNDS,
    PolicyError,
    RecordedRounds,
    Replay,
    SentProbes,
    _may_be_above_zero,
    fall_back,
    find_shared_rounds,
    incumbents,
    policy,
    policy_inputs,
    pooled,
    race,
    rank_members,
)
from isochrone_collector.analysis.stats.arrays import ragged
from isochrone_collector.analysis.stats.long_run_variance import independent
from isochrone_collector.analysis.stats.shifts import paired_shifts
from isochrone_wire.model import SECOND_US
from testdata.columns import present
from testdata.series import SERIES

# Other tests and processes share these cores.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
MS = 1_000.0
NONE = float("nan")
NAMES = ("p/a", "p/b", "q/c")
LEARNT = [(100.0, 200.0, 300.0)] * 6
"""Enough rounds for `a` to be known as the best and `b` as the second."""


def rounds_of(*rounds: tuple[float, ...], limit_ms: float = 0.0, usd: float = 1.0) -> RecordedRounds:
    """Rounds of TTFT in milliseconds, one number per member; every answer costs `usd`, a failure nothing."""
    ttft = np.array(rounds) * MS
    cost = np.where(np.isnan(ttft), NONE, usd)
    return RecordedRounds(region="us", ttft_us=ttft, limit_us=np.full(ttft.shape, limit_ms * MS), cost_usd=cost)


def played(text: str, *rounds: tuple[float, ...], **more: Any) -> Replay:
    [member_input] = policy_inputs([rounds_of(*LEARNT, *rounds, **more)])
    return policy(text, NAMES, best=member_input.best).play(member_input)


def answers(replay: Replay) -> NDArray[np.float64]:
    return replay.ttft.values[~replay.ttft.censored]


def limits(replay: Replay) -> NDArray[np.float64]:
    return replay.ttft.values[replay.ttft.censored]


def ms(replay: Replay) -> list[float]:
    return [value / MS for value in answers(replay)]


@pytest.mark.parametrize(
    ("text", "ttft_ms", "requests", "usd"),
    [
        ("static", [100, 900], 2, 2.0),
        ("static:p/b", [250, 150], 2, 2.0),
        ("static:c", [300, 300], 2, 2.0),
        ("nearest", [100, 900], 2, 2.0),
        ("routed", [100, 900], 2, 2.0),
        ("race:2", [100, 150], 4, 4.0),
        ("race:3", [100, 150], 6, 6.0),
        ("fallback:200", [100, 350], 3, 3.0),
        ("fallback:99ms", [100, 249], 4, 4.0),
        ("fallback:800", [100, 900], 3, 3.0),
    ],
)
def test_two_rounds_by_hand(text: str, ttft_ms: list[float], requests: int, usd: float) -> None:
    """After learning that `a` is best and `b` second: a calm round, and one in which `a` stalls."""
    replay = played(text, (100, 250, 300), (900, 150, 300))
    assert ms(replay) == ttft_ms
    assert (replay.ttft.n, replay.requests, replay.usd, replay.switches) == (2, requests, usd, 0)


@pytest.mark.parametrize(
    ("text", "second", "ttft_ms", "censored_ms", "requests"),
    [
        ("static:p/a", 220, [], [500], 1),
        ("race:2", 220, [220], [], 2),
        ("fallback:200", 220, [420], [], 2),
        ("fallback:200", NONE, [], [700], 2),
    ],
)
def test_failures_fail(text: str, second: float, ttft_ms: list[float], censored_ms: list[float], requests: int) -> None:
    """Without a first token a member fails at its limit, unless another stands in, with its own from its request on."""
    replay = played(text, (NONE, second, 300), limit_ms=500)
    assert (ms(replay), [value / MS for value in limits(replay)]) == (ttft_ms, censored_ms)
    assert (replay.requests, replay.usd) == (requests, float(len(ttft_ms)))


def test_an_unknown_price_is_not_nothing() -> None:
    """If the cost of an answered request is unknown, so is the sum."""
    assert np.isnan(played("race:2", (100, 200, 300), usd=NONE).usd)


def test_routed_leaves_for_good_reason_only() -> None:
    """A clear difference moves it after three rounds, once, and three failures at once; one bad round does not."""
    assert played("routed", (900, 200, 300), *[(100, 200, 300)] * 20).switches == 0
    slow = played("routed", *[(900, 200, 300)] * 40)
    assert slow.switches == 1
    assert set(ms(slow)) == {900, 200}
    assert ms(slow)[-1] == 200
    replay = played("routed", *[(NONE, 200, 300)] * 6, limit_ms=500)
    assert (len(limits(replay)), ms(replay)) == (3, [200, 200, 200])


def test_equal_members_are_not_swapped() -> None:
    """Between two members that are equally good, the best so far changes all the time and routed hardly ever."""
    chance = np.random.default_rng(4)
    rounds = chance.lognormal(5.86, 0.45, (288, 2))
    [member_input] = policy_inputs([rounds_of(*map(tuple, rounds))])
    best = policy("fallback:600000", NAMES[:2]).play(member_input)
    routed = policy("routed", NAMES[:2]).play(member_input)
    assert best.switches > 5 * max(1, routed.switches)


def test_the_best_everywhere_is_one() -> None:
    """Plain `static` is one member for all regions, the best of all their learning rounds together."""
    recordings = [rounds_of(*[(100, 120)] * 10), rounds_of(*[(900, 120)] * 10)]
    ready = policy_inputs(recordings)
    assert {member_input.best for member_input in ready} == {1}
    assert policy("static", NAMES[:2], best=ready[0].best).name == "static:p/b"
    nearest = pooled([policy("nearest", NAMES[:2]).play(member_input) for member_input in ready])
    assert sorted(ms(nearest)) == [100] * 4 + [120] * 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rase:2", "did you mean 'race'"),
        ("", "unknown policy ''"),
        ("race", "from 2 on, not ''"),
        ("race:1", "from 2 on, not '1'"),
        ("race:4", "of the 3 members"),
        ("race:two", "not 'two'"),
        ("fallback", "milliseconds"),
        ("fallback:0", "milliseconds"),
        ("fallback:2s", "not '2s'"),
        ("fallback:9999999", "milliseconds"),
        ("static:p/d", "did you mean"),
        ("static:p", "unknown member 'p'"),
        ("nearest:a", "nothing behind a colon"),
    ],
)
def test_what_is_no_policy(text: str, says: str) -> None:
    """A policy that cannot be played is refused with what is wrong, and the nearest name where there is one."""
    with pytest.raises(PolicyError, match=says):
        policy(text, NAMES)


any_rounds = st.integers(2, 4).flatmap(
    lambda members: st.lists(
        st.tuples(*[st.one_of(st.just(NONE), st.floats(1, 5_000))] * members), min_size=8, max_size=150
    )
)


@unhurried
@given(any_rounds)
def test_all_policies_meet_the_same_rounds(rounds: list[tuple[float, ...]]) -> None:
    """Whatever was recorded, every policy is scored on as many rounds, and each asks at least once in each of them."""
    members = [f"p/{place}" for place in range(len(rounds[0]))]
    [member_input] = policy_inputs([rounds_of(*rounds, limit_ms=60_000)])
    replays = [policy(text, members, best=member_input.best).play(member_input) for text in DEFAULTS]
    assert {replay.ttft.n for replay in replays} == {len(rounds) - member_input.recorded.learning}
    assert all(replay.ttft.n <= replay.requests <= 2 * replay.ttft.n for replay in replays)


@unhurried
@given(any_rounds)
def test_a_race_of_all_is_never_slower(rounds: list[tuple[float, ...]]) -> None:
    """In every round the race of all members is as fast as the fastest of them, and fails only when all do."""
    whole = rounds_of(*rounds, limit_ms=60_000)
    count = len(rounds[0])
    all_members = np.tile(np.arange(count), (len(rounds), 1))
    all_raced = race(whole, all_members)
    scored = whole.ttft_us[whole.learning :]
    assert all_raced.ttft.n == len(scored)
    answered = scored[~np.isnan(scored).all(axis=1)]
    assert np.array_equal(answers(all_raced), np.fmin.reduce(answered, axis=1))
    for member in range(count):
        alone = race(whole, np.full((len(rounds), 1), member))
        assert len(limits(all_raced)) <= len(limits(alone))


@unhurried
@given(any_rounds, st.integers(1, 4_000))
def test_a_fallback_lies_between_one_and_the_race(rounds: list[tuple[float, ...]], delay_ms: int) -> None:
    """Falling back is never slower than the first alone, nor faster than both at once."""
    whole = rounds_of(*rounds, limit_ms=60_000)
    pair = np.tile(np.arange(2), (len(rounds), 1))
    effective = {
        name: np.concatenate([np.sort(answers(replay)), np.full(len(limits(replay)), np.inf)])
        for name, replay in {
            "race": race(whole, pair),
            "fallback": fall_back(whole, pair, delay_ms * MS),
            "first": race(whole, pair[:, :1]),
        }.items()
    }
    assert np.all(effective["race"] <= effective["fallback"])
    assert np.all(effective["fallback"] <= effective["first"])


@unhurried
@given(any_rounds, st.data())
def test_nobody_looks_ahead(rounds: list[tuple[float, ...]], data: st.DataObject) -> None:
    """Changing what is recorded from some round on changes no choice before that round, nor in it."""
    place = data.draw(st.integers(0, len(rounds) - 1))
    changed = [*rounds[:place], *(tuple(reversed(row)) for row in rounds[place:])]
    before, after = rounds_of(*rounds), rounds_of(*changed)
    assert np.array_equal(rank_members(before)[: place + 1], rank_members(after)[: place + 1])
    chosen = [incumbents(one, rank_members(one))[: place + 1].tolist() for one in (before, after)]
    assert chosen[0] == chosen[1]


@unhurried
@given(st.integers(2 * LOOKBACK_ROUNDS, 3 * LOOKBACK_ROUNDS))
def test_what_is_long_past_is_forgotten(length: int) -> None:
    """A ranking is that of the last sixty rounds alone."""
    chance = np.random.default_rng(length)
    rounds = [tuple(row) for row in chance.lognormal(5, 1, (length, 3))]
    assert np.array_equal(
        rank_members(rounds_of(*rounds))[-1],
        rank_members(rounds_of(*([(1.0, 2.0, 3.0)] * 7), *rounds[-LOOKBACK_ROUNDS - 1 :]))[-1],
    )


@unhurried
@given(st.lists(st.integers(-30, 60), min_size=1, max_size=70))
def test_the_quick_look_rejects_no_interval(differences: list[int]) -> None:
    """Whatever the quick look rejects has no interval above zero, ties and zeros included."""
    several = np.array(differences, np.float64)
    if paired_shifts(ragged([several]), known=independent(1)).low[0] > 0:
        assert _may_be_above_zero(several)


@pytest.mark.parametrize("text", DEFAULTS)
@pytest.mark.parametrize("name", [name for name, own in SERIES.items() if len(own) > 1])
@pytest.mark.parametrize("other", ["constant", "all rounds censored"])
def test_bad_input_has_honest_figures(text: str, name: str, other: str) -> None:
    """Quantiles lie within their bounds, none for few independent rounds; a round without a token counts as awaited."""
    own = SERIES[name]
    rounds = np.stack([own, np.resize(SERIES[other], len(own)), own[::-1]], axis=1)
    [member_input] = policy_inputs([rounds_of(*rounds.tolist(), limit_ms=60_000)])
    replay = policy(text, NAMES, best=member_input.best).play(member_input)
    assert replay.ttft.n == len(own) - member_input.recorded.learning
    for share in (0.5, 0.95):
        found = replay.ttft.quantile(share)
        assert found is not None
        assert found.n_eff is not None
        assert 1 <= found.n_eff <= replay.ttft.n
        assert found.low is None or found.low <= found.value
        assert found.high is None or found.high >= found.value
        assert (found.high is None) == (share > 0.5 or found.n_eff < 6)


def test_a_level_that_swings_is_worth_few_rounds() -> None:
    """Two days that rise and fall by 30 % are worth few independent rounds, and a p95 has no upper bound."""
    rounds = np.repeat(SERIES["day and night"][:, np.newaxis], 3, axis=1)
    [member_input] = policy_inputs([rounds_of(*rounds.tolist())])
    replay = policy("static", NAMES).play(member_input)
    assert present(present(replay.ttft.quantile(0.5)).n_eff) < 15
    assert present(replay.ttft.quantile(0.95)).high is None


A, B = 11, 12
SLOT_US = 10 * SECOND_US
Probe = tuple[int, float, float | None]
"""Target, seconds since the start, and TTFT in microseconds; without one, it was throttled."""


def sent(*probes: Probe, vantage_id: int = 1) -> SentProbes:
    at = np.array([int(seconds * SECOND_US) for _, seconds, _ in probes], np.int64)
    nothing: Any = np.zeros(len(probes))
    return SentProbes(
        target_id=np.array([target for target, _, _ in probes], np.int64),
        vantage_id=np.full(len(probes), vantage_id, np.int64),
        round_at=at,
        dispatched_at=at,
        throttled=np.array([ttft is None for _, _, ttft in probes]),
        ttft_us=np.array([float("nan") if ttft is None else ttft for _, _, ttft in probes]),
        limit_us=nothing,
        cost_usd=nothing,
    )


def test_joint_rounds_begin_together() -> None:
    """Without a slot only rounds count that were planned at one instant and began within a second."""
    probes = sent((A, 1.0, 1.0), (B, 1.0, 2.0), (A, 11.0, 3.0), (B, 11.1, 4.0), (A, 21.0, 5.0), (B, 21.0, 6.0))
    waited = replace(probes, dispatched_at=probes.dispatched_at + np.array([0, 900_000, 0, 0, 0, 1_100_000]))
    [only] = find_shared_rounds(waited, (A, B), {1: "us"})
    assert (only.recorded.ttft_us.tolist(), only.left_out) == ([[1.0, 2.0]], 3)


@pytest.mark.parametrize(
    ("probes", "rounds", "left_out", "absent"),
    [
        # Targets probed at different instants of the same ten seconds make one round; in order of time.
        ([(B, 17.0, 4.0), (A, 11.5, 3.0), (A, 1.5, 1.0), (B, 7.0, 2.0)], [[1.0, 2.0], [3.0, 4.0]], 0, ()),
        # Of a member's several rounds in a slot the first one counts, and of a burst the one sent first.
        ([(A, 2.0, 2.0), (A, 1.0, 1.0), (A, 6.0, 6.0), (B, 5.0, 5.0)], [[1.0, 5.0]], 0, ()),
        # A slot in which a member was not probed, or was throttled, is left out.
        (
            [(A, 1.0, 1.0), (B, 2.0, 2.0), (A, 11.0, 1.0), (A, 21.0, 1.0), (B, 22.0, None)],
            [[1.0, 2.0]],
            2,
            (),
        ),
        # A member without a single probe from a vantage leaves it nothing to share.
        ([(A, 1.0, 1.0), (A, 11.0, 1.0)], [], 2, (1,)),
    ],
)
def test_slots_are_fair(probes: list[Probe], rounds: list[list[float]], left_out: int, absent: tuple[int, ...]) -> None:
    """A slot with a round of every member counts, with the first one of each."""
    [found] = find_shared_rounds(sent(*probes), (A, B), {1: "us"}, slot_us=SLOT_US)
    assert found.recorded.ttft_us.tolist() == rounds
    assert (found.left_out, found.absent, found.recorded.region) == (left_out, absent, "us")


def test_vantages_are_clients_of_their_own() -> None:
    """Two vantages in one slot make two rounds, each with its own region."""
    one, other = sent((A, 1.0, 1.0), (B, 2.0, 2.0)), sent((A, 1.0, 3.0), (B, 2.0, 4.0), vantage_id=2)
    both = SentProbes(
        **{name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in SentProbes.__dataclass_fields__}
    )
    found = find_shared_rounds(both, (A, B), {1: "us", 2: "sg"}, slot_us=SLOT_US)
    assert [(part.recorded.region, part.recorded.ttft_us.tolist()) for part in found] == [
        ("us", [[1.0, 2.0]]),
        ("sg", [[3.0, 4.0]]),
    ]
