"""The public form of the key of a sample."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.store.samples import Position, parse_sample_name, sample_name
from isochrone_wire.durations import MAX_INSTANT_AT

BIGINTS = st.integers(0, 2**63 - 1)
POSITIONS = st.builds(
    Position,
    round_at=st.integers(0, MAX_INSTANT_AT),
    target_id=BIGINTS,
    vantage_id=BIGINTS,
    epoch=BIGINTS,
    seq=BIGINTS,
    idx=st.integers(0, 2**31 - 1),
)
NAME = sample_name(asdict(Position(round_at=1_795_248_000_000_000, target_id=7, vantage_id=1, epoch=2, seq=3, idx=4)))


@given(POSITIONS)
def test_every_position_has_a_name(position: Position) -> None:
    """A name stands for one position, and fits into a URL without escapes."""
    name = sample_name(asdict(position))
    assert parse_sample_name(name) == position
    assert name.replace("-", "").replace("_", "").isalnum()


@given(st.text(max_size=80) | st.from_regex(r"sample_[A-Za-z0-9_-]{57,61}", fullmatch=True))
def test_any_other_text_is_none(text: str) -> None:
    """Any text is a position with this very name, or none."""
    found = parse_sample_name(text)
    assert found is None or sample_name(asdict(found)) == text


@pytest.mark.parametrize("text", ["", "sample_", NAME[:-1], NAME + "A", NAME.removeprefix("sample_"), NAME + "=", "7"])
def test_what_is_cut_off_is_none(text: str) -> None:
    """A part of a name is no name, and neither is one of a round outside the calendar."""
    for round_at in (-(2**63), -1, MAX_INSTANT_AT + 1, 2**63 - 1):
        assert parse_sample_name(sample_name(asdict(Position(round_at=round_at)))) is None
    assert parse_sample_name(NAME) is not None
    assert parse_sample_name(text) is None
