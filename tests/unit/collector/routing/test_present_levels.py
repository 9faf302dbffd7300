"""The filter of the present levels: its state, and what it cannot use."""

from dataclasses import replace

import numpy as np
import pytest

from bench.truth.series import chained
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_collector.routing.inputs import Inputs, JointRounds
from isochrone_collector.routing.present_levels import LEVELS, PresentLevels, followed
from isochrone_wire.durations import DAY_US
from testdata.routing_worlds import AT, RULES, evidence, inputs_for, joint_rounds

EVERY_US = RULES.epoch_us // 6


def seen(rounds: int, *, at: int = AT) -> Inputs:
    """The first rounds of a course in which b is as fast as a, and slower by 250 ms from the 36th of 72 rounds on."""
    noise = np.random.default_rng(7).normal(0, 0.2, (2, 72))
    a = 350 * np.exp(noise[0][:rounds])
    b = np.where(np.arange(rounds) < 36, 350, 600) * np.exp(noise[1][:rounds])
    return inputs_for(evidence("a", 350), evidence("b", 350), joint=joint_rounds(a=list(a), b=list(b)), at=at)


def level(state: PresentLevels, inputs: Inputs) -> float:
    probabilities = followed(state, inputs)[1].of("b", "a")
    assert probabilities is not None
    return float(probabilities @ LEVELS)


def test_the_present_level_is_that_of_the_last_rounds() -> None:
    """A jump in the middle of the window counts in full, in either direction of the pair."""
    _, present = followed(PresentLevels(), seen(72))
    there, back = present.of("b", "a"), present.of("a", "b")
    assert there is not None
    assert back is not None
    assert float(there @ LEVELS) == pytest.approx(np.log(600 / 350), abs=0.1)
    assert float(back @ LEVELS) == pytest.approx(-float(there @ LEVELS))
    assert present.of("a", "c") is None


def test_a_stored_state_continues_as_if_it_had_seen_all() -> None:
    """Decisions on six rounds each, from the state of the one before, end at the true level."""
    state, whole = PresentLevels(), seen(72)
    for rounds in range(6, 73, 6):
        inputs = seen(rounds, at=AT - (72 - rounds) * EVERY_US)
        shift = AT - (72 - rounds) * EVERY_US - max(inputs.joint.round_at)
        joint = replace(inputs.joint, round_at=tuple(one + shift for one in inputs.joint.round_at))
        state, _ = followed(state, replace(inputs, joint=joint))
    assert level(state, whole) == pytest.approx(np.log(600 / 350), abs=0.05)


@pytest.mark.parametrize("broken", [{"weights": (0.0, -1.0)}, {"until_at": AT + 36 * 86_400_000_000}])
def test_a_state_that_cannot_be_used_begins_anew(broken: dict[str, object]) -> None:
    """A state with other hypotheses, or of a clock that was ahead, is dropped."""
    state, _ = followed(PresentLevels(), seen(36))
    found = followed(replace(state, until_at=0), seen(72))
    assert found[0].weights
    unusable = replace(replace(state, until_at=0), **broken)  # type: ignore[arg-type]  # a table of mixed fields
    assert level(unusable, seen(72)) == pytest.approx(level(PresentLevels(), seen(72)))


def on_the_second_day(logs: Reals) -> list[tuple[float, float]]:
    """The expected logarithm of b / a and the caution, by epoch: b has these logarithms and noise."""
    noise = np.random.default_rng(7).normal(0, 0.4, (2, len(logs)))
    whole = joint_rounds(a=list(350 * np.exp(noise[0])), b=list(350 * np.exp(noise[1] + logs)))
    state, found = PresentLevels(), []
    for until in range(72, len(logs) + 1, 6):
        own = slice(until - 72, until)
        joint = JointRounds(
            round_at=whole.round_at[own], ttft={name: column[own] for name, column in whole.ttft.items()}
        )
        inputs = inputs_for(evidence("a", 350), evidence("b", 350), joint=joint, at=joint.round_at[-1])
        state, present = followed(state, inputs)
        probabilities = present.of("b", "a")
        assert probabilities is not None
        found.append((float(probabilities @ LEVELS), present.caution))
    return found[len(found) // 2 :]


def test_drift_of_hours_is_noise_and_a_swing_by_day_is_not() -> None:
    """Of a swing, a lead is enough most of the time; of drift with the same deviation seldom."""
    rounds = 2 * DAY_US // EVERY_US
    swing = 0.28 * np.sin(2 * np.pi * np.arange(rounds) * EVERY_US / DAY_US)
    drift = 0.2 * chained(np.random.default_rng(5).standard_normal(rounds), 0.97 ** (1 / 6), axis=0)
    leads = [on_the_second_day(of) for of in (swing, drift)]
    enough = [np.mean([abs(lead) > 0.05 + caution for lead, caution in of]) for of in leads]
    assert enough[0] > 0.8
    assert enough[1] < 0.3


def test_a_round_without_a_member_says_nothing_of_its_pairs() -> None:
    """A pair of which one is missing keeps its level, while the others follow theirs."""
    rounds, nan = np.arange(72), float("nan")
    c = np.where(rounds < 48, 500.0, nan)
    joint = joint_rounds(a=[350.0] * 72, b=list(np.where(rounds < 48, 350.0, 700.0)), c=list(c))
    _, present = followed(PresentLevels(), inputs_for(*(evidence(name, 350) for name in "abc"), joint=joint))
    for pair, ratio in (("ba", 2.0), ("ca", 500 / 350)):
        probabilities = present.of(*pair)
        assert probabilities is not None
        assert float(probabilities @ LEVELS) == pytest.approx(np.log(ratio), abs=0.1)
