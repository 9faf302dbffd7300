"""Names of metrics and orders."""

import pytest

from isochrone_wire.answers import Metric, Order


def test_each_spelling_is_the_same_member() -> None:
    """A metric and an order may be written with `-` or `_`, as in the answer to the other question."""
    assert Metric("tokens-per-second") is Metric.TOKENS_PER_SECOND
    assert Order("ttft_cold") is Order.TTFT_COLD
    for member in (*Metric, *Order):
        assert type(member)(member.upper().replace("-", "_")) is member


@pytest.mark.parametrize("name", ["", "speed", "ttft cold"])
def test_other_names_are_none(name: str) -> None:
    """An unknown name is an error, not the nearest member."""
    with pytest.raises(ValueError, match="is not a valid Metric"):
        Metric(name)
