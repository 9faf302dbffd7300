"""The codec is total: every value survives the wire, and what cannot be a value is refused by name."""

from dataclasses import is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_wire import codec, model, operations
from isochrone_wire.fleet import VantageList, VantageStatus
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.v1 import sample_pb2

INTS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
COUNTS = st.integers(min_value=0, max_value=2**63 - 1)
TEXTS = st.text(max_size=20)
VALUE_CLASSES = [
    cls
    for module in (model, operations)
    for cls in (*vars(module).values(), Alert, VantageList, VantageStatus)
    if isinstance(cls, type) and is_dataclass(cls) and cls.__module__.startswith("isochrone_wire.")
    if cls is not model.Account  # computed from a heartbeat, and never sent
]


def strategy_for(cls: type) -> st.SearchStrategy[Any]:
    """Values of a class from the wire, each field drawn from its type hint."""
    return st.builds(cls)


st.register_type_strategy(int, INTS)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(str, TEXTS)
st.register_type_strategy(model.Quality, st.integers(min_value=0, max_value=255).map(model.Quality))


@pytest.mark.parametrize("cls", sorted({*VALUE_CLASSES}, key=str), ids=str)
def test_every_value_survives_the_wire(cls: type) -> None:
    """decode(encode(v)) == v, through real bytes, for every value class."""

    @settings(max_examples=40, deadline=None)
    @given(strategy_for(cls))
    def survives(value: Any) -> None:
        message = codec.encode(value)
        again = type(message).FromString(message.SerializeToString())
        assert codec.decode(cls, again) == value

    survives()


def test_absent_is_not_zero() -> None:
    """An unknown quantity stays unknown, and zero stays zero."""
    sample = model.Sample(target_id=1, round_at=2, outcome=model.Outcome.OK, dispatched_at=3, dns_us=0, tls_us=None)
    back = codec.decode(model.Sample, codec.encode(sample))
    assert (back.dns_us, back.tls_us) == (0, None)


def test_an_alert_kind_of_the_future_is_kept() -> None:
    """Alerts of a newer collector are read with their kind as text; anything but a name is none."""
    alert = Alert(id=1, kind=AlertKind("quota_moved"), subject="s", sentence="t", raised_at=2)
    back = codec.decode(Alert, codec.encode(alert))
    assert (back, back.kind.value, f"{back.kind}") == (alert, "quota_moved", "quota_moved")
    assert "quota_moved" not in set(AlertKind)
    for text in ("", "Quota moved", "x" * 65):
        with pytest.raises(ValueError, match="is not a valid AlertKind"):
            AlertKind(text)


def test_an_outcome_of_the_future_is_named() -> None:
    """An unknown value is a `CodecError` with the name of the field, and so is another class."""
    message = sample_pb2.Sample(target_id=1, outcome=99)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(codec.CodecError, match=r"Sample\.outcome"):
        codec.decode(model.Sample, message)
    with pytest.raises(KeyError):
        codec.message_class(codec.CodecError)
