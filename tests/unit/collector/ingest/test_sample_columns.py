"""Vectorised and one-by-one validation agree, on valid samples, on invalid ones and on hostile bytes."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.errors import BadRequest
from isochrone_collector.ingest import raw_push, validation
from isochrone_collector.ingest.raw_push import decode_push
from isochrone_collector.ingest.sample_columns import COLUMN, ENUMS, LIMIT, NUMBERS, RATES, TEXTS, SampleColumns
from isochrone_collector.ingest.validation import late_reason, rejection_reason, validate
from isochrone_wire import codec
from isochrone_wire.answers import Window
from isochrone_wire.codec import CodecError
from isochrone_wire.model import DAY_US, Batch, Outcome, Quality, RateLimit, Sample, Vantage
from isochrone_wire.v1 import fleet_pb2, sample_pb2

NOW_AT = 1_795_248_000_000_000
WINDOW = Window(from_at=NOW_AT - 31 * DAY_US, until_at=NOW_AT + 4 * DAY_US)

INT64 = st.integers(-(2**63), 2**63 - 1)
ODD = st.sampled_from([0, -1, 1, 127, 128, 2**31 - 1, 2**31, DAY_US, DAY_US + 1, -DAY_US, 2**62, -(2**63), 2**63 - 1])
INSTANTS = st.integers(NOW_AT - 450 * DAY_US, NOW_AT + 450 * DAY_US) | INT64
NUMBER = ODD | INT64 | st.integers(0, 1000)
TEXT = st.text(max_size=12) | st.sampled_from(["", "a\0b", "x" * 101, "ü" * 200, "€" * 500, "x" * 501])
RATE = st.floats() | st.sampled_from([0.0, -0.0, 1e6, 1e6 + 1, float("nan"), float("inf")])


def a_sample(**values: Any) -> Sample:
    return Sample(**{"outcome": Outcome.OK, **values})


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "target_id": st.sampled_from([7, 8]),
    "round_at": INSTANTS,
    "dispatched_at": INSTANTS,
    "outcome": st.sampled_from(Outcome),
    "quality": st.integers(0, 2**32 - 1).map(Quality),
    "late_us": NUMBER,
    "chunks": NUMBER,
    "output_chars": NUMBER,
    "frames_unknown": NUMBER,
    "token_source": st.sampled_from([None, "usage", "estimated"]),
    "ratelimit": maybe(st.builds(RateLimit, **{name: maybe(NUMBER) for name in RateLimit.__slots__})),
    **{name: maybe(TEXT) for name in TEXTS},
    **{name: maybe(RATE) for name in RATES},
}
# A wrong field hides other wrong fields of the same sample, so most samples have a few fields only.
WILD = st.builds(Sample, **{name: SPECIAL.get(name, maybe(NUMBER)) for name in Sample.__slots__})
TAME = st.fixed_dictionaries(
    {"target_id": st.just(7), "round_at": st.just(NOW_AT), "dispatched_at": st.just(NOW_AT)},
    optional={name: SPECIAL.get(name, maybe(NUMBER)) for name in Sample.__slots__ if not name.endswith(("_id", "_at"))},
).map(lambda values: a_sample(**values))


def field_bytes(number: int, wire_type: int, value: int, content: bytes) -> bytes:
    """Encode a field of any wire type, whatever the schema declares."""
    body = {
        0: varint(value),
        1: (value % 2**64).to_bytes(8, "little"),
        2: varint(len(content)) + content,
        5: (value % 2**32).to_bytes(4, "little"),
    }[wire_type]
    return varint(number << 3 | wire_type) + body


def varint(number: int) -> bytes:
    left, octets = number % 2**64, bytearray()
    while left > 0x7F:
        octets.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*octets, left])


FIELD = st.builds(
    field_bytes,
    st.sampled_from([field.number for field in sample_pb2.Sample.DESCRIPTOR.fields]) | st.integers(1, 100),
    st.sampled_from([0, 0, 0, 1, 2, 5]),
    NUMBER,
    st.binary(max_size=8) | st.builds(field_bytes, st.integers(1, 8), st.just(0), NUMBER, st.just(b"")),
)
HOSTILE = st.lists(FIELD, max_size=12).map(b"".join)


def push_of(samples: list[bytes]) -> bytes:
    vantage = codec.encode(Vantage(name="v", region="v")).SerializeToString()
    return b"".join([field_bytes(1, 2, 0, vantage), *(field_bytes(4, 2, 0, sample) for sample in samples)])


def assert_decoded_the_same(request: fleet_pb2.Batch, columns: SampleColumns) -> None:
    """Each value in the columns is the value of the field in the message."""
    assert len(columns) == len(request.samples)
    for row, sample in enumerate(request.samples):
        for name in (name for name in NUMBERS if name not in ENUMS):
            message: Any = sample.ratelimit if name.startswith(LIMIT) else sample
            field = message.DESCRIPTOR.fields_by_name[name.removeprefix(LIMIT)]
            assert int(columns.numbers[row, COLUMN[name]]) == getattr(message, field.name), name
            assert bool(columns.present[row, COLUMN[name]]) == (not field.has_presence or message.HasField(field.name))
        any_sample: Any = sample
        for column, name in enumerate(TEXTS):
            text = getattr(sample, name) if any_sample.HasField(name) else None
            assert columns.texts[column][row].as_py() == (None if text is None else text.encode())
        assert columns.rated[row].tolist() == [any_sample.HasField(name) for name in RATES]
        assert repr(columns.rates[row].tolist()) == repr([getattr(sample, name) for name in RATES])


def columns_of(*samples: sample_pb2.Sample) -> SampleColumns:
    return raw_push.decode([sample.SerializeToString() for sample in samples])


def verdict_of(sample: sample_pb2.Sample) -> str | None:
    """Validate one sample without columns."""
    try:
        value = codec.decode(Sample, sample)
    except CodecError as error:
        return f"unreadable: {error}"
    return rejection_reason(value, now_at=NOW_AT)


def assert_validated_the_same(content: bytes) -> None:
    request = fleet_pb2.Batch.FromString(content)
    batch = decode_push(content, NOW_AT)
    columns = batch.decode_columns()
    assert_decoded_the_same(request, columns)
    verdicts = [verdict_of(sample) for sample in request.samples]
    fails_fast_validation = validation.fails_fast_validation(columns, now_at=NOW_AT).tolist()
    assert [v for v, suspect in zip(verdicts, fails_fast_validation, strict=True) if v and not suspect] == []
    validated = validate(batch, columns, window=WINDOW)
    assert [(r.index, r.reason) for r in validated.rejections] == [(i, v) for i, v in enumerate(verdicts) if v]
    late = {
        place: late_reason(request.samples[place].round_at, WINDOW, now_at=NOW_AT)
        for place, verdict in enumerate(verdicts)
        if verdict is None
    }
    assert validated.late == tuple((i, reason) for i, reason in late.items() if reason)
    assert validated.fresh.tolist() == [i for i, reason in late.items() if not reason]


@settings(max_examples=120, deadline=None)
@given(st.lists(TAME | WILD, max_size=6))
def test_samples_are_validated_as_one_by_one(samples: list[Sample]) -> None:
    """For any values, the prefilter clears no sample that validation would reject, and the reasons are the same."""
    batch = Batch(vantage=Vantage(name="v", region="r"), epoch=1, seq=1, samples=tuple(samples))
    assert_validated_the_same(codec.encode(batch).SerializeToString())


@settings(max_examples=150, deadline=None)
@given(st.lists(HOSTILE, max_size=5))
def test_bytes_are_validated_as_one_by_one(samples: list[bytes]) -> None:
    """Repeated, misplaced, mistyped and unknown fields are decoded as by protobuf, or refused as a `BadRequest`."""
    content = push_of(samples)
    try:
        assert_validated_the_same(content)
    except DecodeError:
        with pytest.raises(BadRequest, match="cannot decode the push"):
            decode_push(content, NOW_AT).decode_columns()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x0b\x14", id="a group with the end of another one"),
        pytest.param(b"\x0b" * (60 << 10), id="sixty thousand nested groups"),
        pytest.param(b"\xf2\x02" + b"\xff" * 9 + b"\x01", id="a text of 2^64 - 1 bytes"),
    ],
)
def test_no_bytes_that_protobuf_refuses_are_decoded(content: bytes) -> None:
    """Ptars accepts groups that end wrongly, overflows the stack on nested ones, and panics on impossible lengths."""
    sample = sample_pb2.Sample(target_id=7, round_at=NOW_AT, dispatched_at=NOW_AT).SerializeToString()
    with pytest.raises(DecodeError):
        sample_pb2.Sample.FromString(sample + content)
    with pytest.raises(BadRequest, match="cannot decode the push"):
        decode_push(push_of([sample + content]), NOW_AT).decode_columns()


@pytest.mark.parametrize("number", [0, 17, 99, -1, 2**31 - 1, -(2**31)])
def test_an_outcome_of_the_future_is_a_suspect(number: int) -> None:
    """A number without a known outcome is never taken for a known one."""
    sample = sample_pb2.Sample(target_id=7, round_at=NOW_AT, dispatched_at=NOW_AT)
    sample.outcome = number  # type: ignore[assignment]  # the point of the test
    columns = columns_of(sample)
    assert validation.fails_fast_validation(columns, now_at=NOW_AT).tolist() == [True]


def test_no_samples_make_empty_columns() -> None:
    """A push without samples decodes to columns without rows."""
    columns = columns_of()
    assert (len(columns), columns.targets(), columns.numbers.shape) == (0, set(), (0, len(NUMBERS)))


def test_a_valid_sample_is_no_suspect() -> None:
    """The prefilter clears a valid sample with every quantity, so that it is not checked again."""
    honest = {name: 200 for name in NUMBERS if name not in ENUMS and not name.startswith(LIMIT)}
    honest |= {"target_id": 7, "round_at": NOW_AT, "dispatched_at": NOW_AT, "quality": Quality(200)}
    texts = dict.fromkeys(TEXTS, "text")
    limits = RateLimit(**dict.fromkeys(RateLimit.__slots__, 2**40))
    sample = a_sample(cost_usd=0.0, tokens_per_second=1e6, ratelimit=limits, **honest, **texts)
    columns = columns_of(codec.encode(sample))
    assert validation.fails_fast_validation(columns, now_at=NOW_AT).tolist() == [False]
