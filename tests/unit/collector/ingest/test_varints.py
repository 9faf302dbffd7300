"""Runs of varints: every number is decoded, and pairs inside nested messages are found."""

from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.ingest import varints
from isochrone_wire.v1 import sample_pb2

INT64 = st.integers(-(2**63), 2**63 - 1)


def written(number: int) -> bytes:
    left, octets = number % 2**64, bytearray()
    while left > 0x7F:
        octets.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*octets, left])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**14 - 1), INT64), max_size=30))
def test_every_number_is_decoded(told: list[tuple[int, int]]) -> None:
    """Keys and values of one to ten bytes, signed, are decoded in order, with the offset of each key."""
    run = b"".join(written(key) + written(value) for key, value in told)
    pairs = varints.read(run)
    assert list(zip(pairs.keys.tolist(), pairs.values.tolist(), strict=True)) == told
    assert [run[start:].startswith(written(key)) for start, (key, _) in zip(pairs.starts, told, strict=True)] == [
        True
    ] * len(told)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(1, 7), INT64), max_size=5), max_size=6))
def test_pairs_inside_a_message_are_found(messages: list[list[tuple[int, int]]]) -> None:
    """A pair is inside exactly when it lies in the bytes of its holder, also with an empty message."""
    holder = varints.key(47, varints.WIRE_BYTES)
    run, expected = b"", []
    for message in messages:
        content = b"".join(
            written(varints.key(field, varints.WIRE_VARINT)) + written(value) for field, value in message
        )
        run += written(8) + written(5) + written(holder) + written(len(content)) + content
        expected += [False, False, *[True] * len(message)]
    assert varints.read(run).inside(holder).tolist() == expected


def test_the_output_of_protobuf_is_decoded() -> None:
    """The format is that of protobuf."""
    message = sample_pb2.RateLimit(limit_requests=-1, remaining_requests=0, retry_after_us=300)
    pairs = varints.read(message.SerializeToString())
    assert (pairs.keys.tolist(), pairs.values.tolist()) == ([8, 16, 56], [-1, 0, 300])
