"""Decoder for protocol-buffer messages that consist of varints, all decoded at once with arrays. Pure.

A varint is little-endian, seven bits to a byte, and every byte but its last has the high bit set. A message whose
fields are all varints, or messages of such fields, is a run of varint pairs: a key (field number and wire type), then
the value, or for a nested message, its length in bytes. So thousands of samples are decoded with a few dozen array
operations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WIRE_VARINT = 0
WIRE_BYTES = 2

_MORE = 0x80
_SEVEN_BITS = 0x7F


@dataclass(frozen=True, slots=True)
class Pairs:
    """Parallel arrays of keys and values; `starts` is the offset of each key, in bytes."""

    keys: NDArray[np.int64]
    values: NDArray[np.int64]
    starts: NDArray[np.int64]

    def inside(self, key: int) -> NDArray[np.bool_]:
        """Return a flag per pair: is it inside a nested message with this `key`?"""
        (holders,) = np.nonzero(self.keys == key)
        after = np.append(self.starts, self.starts[-1] + 1) if len(self.starts) else self.starts
        # A nested message begins with the pair after its holder, and the holder's value is its length in bytes.
        first = holders + 1
        beyond = np.searchsorted(self.starts, after[first] + self.values[holders])
        depth = np.zeros(len(self.keys) + 1, np.int64)
        np.add.at(depth, first, 1)
        np.add.at(depth, beyond, -1)
        return np.cumsum(depth[:-1]) > 0


def key(field: int, wire_type: int) -> int:
    """Return the key of a field by its number."""
    return field << 3 | wire_type


def read(data: bytes) -> Pairs:
    """Decode a message. `data` must be written by protobuf: complete pairs of varints, of fields up to 2047."""
    octets = np.frombuffer(data, np.uint8)
    seven: NDArray[np.uint8] = octets & np.uint8(_SEVEN_BITS)
    (ends,) = np.nonzero(octets < _MORE)
    starts = np.concatenate((np.zeros(1, np.int64), ends + 1))[:-1]
    key_starts, key_ends = starts[0::2], ends[0::2]
    high = np.where(key_ends > key_starts, seven.take(key_ends), 0).astype(np.int64)
    return Pairs(
        keys=seven.take(key_starts) | high << 7,
        values=_numbers(seven, starts[1::2], ends[1::2]),
        starts=key_starts,
    )


def _numbers(seven: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Decode varints of any length, given their starts and ends, from the seven bits of each byte."""
    numbers = seven.take(starts).astype(np.int64)
    # Fewer and fewer varints have more bytes: their indices, the current byte of each, and its last byte.
    (longer,) = np.nonzero(ends > starts)
    at, last = starts.take(longer), ends.take(longer)
    shift = 7
    while longer.size:
        at += 1
        numbers[longer] |= seven.take(at).astype(np.int64) << shift
        (unfinished,) = np.nonzero(last > at)
        longer, at, last = longer.take(unfinished), at.take(unfinished), last.take(unfinished)
        shift += 7
    return numbers
