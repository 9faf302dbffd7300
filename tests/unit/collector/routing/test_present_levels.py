"""The filter of the present levels: its state, and what it cannot use."""

from dataclasses import replace

import numpy as np
import pytest

from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.present_levels import LEVELS, PresentLevels, followed
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
