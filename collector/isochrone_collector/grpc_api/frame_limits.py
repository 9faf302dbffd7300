"""Limits of what a connection of HTTP/2 may send, checked before gRPC reads it. Pure.

gRPC decodes all header fields of a frame before it compares their size with its limit, and passes them on even if they
exceed it: 16 kB of references to one field become a megabyte, and 25 ms of the event loop. Neither does it limit how
often a caller opens streams and resets them.

1. The fields of a request, of the size that RFC 9113 (6.5.2) defines, are at most `MAX_FIELDS_BYTES`, in one frame:
   CONTINUATION exists for larger ones only. The fields are measured, not decoded: a string that is compressed counts
   as the longest text that it can be, and a reference (RFC 7541) as the field that was sent.
2. Until the connection is `admitted`, which is when a call has a valid credential, frames are counted by their type,
   and gRPC has at most one request whose message is incomplete: each takes a kilobyte and more until it has arrived. A
   request is passed on with its message, and with all requests that are mixed with it, or else the beginning of a large
   one; nothing more is then read before that is answered. So the messages of a call without a credential are at most
   `MAX_FRAME_BYTES`, and those of one with a credential have any size.
3. Padded header fields are refused: gRPC ignores the flag, and decodes other ones than were measured.
4. A frame is passed on after its check; with a credential the bytes of messages are passed on at once, because gRPC
   limits its buffer of a message.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from types import MappingProxyType

from isochrone_collector.auth.limits import LeakyBucket

MAX_FIELDS_BYTES = 8 << 10
"""Maximum size of the header fields of a request; gRPC announces it to clients."""

MAX_FRAME_BYTES = 16 << 10
"""Maximum size of a frame: the least that HTTP/2 permits, and gRPC announces it, too."""

TABLE_BYTES = 4 << 10
"""Size of the table of header fields that were sent: the default of HTTP/2."""

_PREFACE_BYTES = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_HEAD_BYTES = 9
# Of RFC 7541: what an entry counts beside its texts, the entries of the static table, and at least as much as any of
# them has; the bits of the shortest code of a character.
_ENTRY_BYTES, _STATIC_ENTRIES, _STATIC_BYTES = 32, 61, 64
_SHORTEST_BITS = 5
_SHORTENED = 0x80
_MAX_INTEGER_BYTES = 4


class FrameType(IntEnum):
    """The types of frames that have limits (RFC 9113, section 6)."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    CONTINUATION = 9


# From this size of the waiting parts on, the beginning of a message is passed on. A request without a credential is
# smaller.
_LARGE_BYTES = 14 << 10
# More than the calls that gRPC has at once.
_MAX_CALLS = 200
# Before a message: whether it is compressed, and its length.
_PREFIX_BYTES = 5
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x4, 0x8, 0x20
# The bits of the number of a stream; there is one more, which is ignored.
_STREAM = 0x7FFFFFFF

# Without a credential, frames per second and at once.
_RATES: Mapping[int, tuple[float, float]] = MappingProxyType(
    {FrameType.HEADERS: (100.0, 200.0), FrameType.RST_STREAM: (1.0, 20.0)}
)
_OTHERS_PER_SECOND, _OTHERS_AT_ONCE = 200.0, 1_000.0
# Frames of a message from this size on are not counted: their bytes cost more than they do.
_SMALL_BYTES = 1 << 10


class LimitError(Exception):
    """The connection has to be closed; the text is the reason."""


@dataclass(slots=True)
class _Call:
    """A call that is yet to be answered, and the number of the part with which its newest incomplete message begins."""

    part: int
    is_whole: bool = False
    """Whether no message is incomplete, nor are they too large for a call without a credential."""
    size: int = 0
    prefix: bytes = b""
    missing: int = 0

    def add(self, content: bytes) -> None:
        """Note more of its messages."""
        self.size += len(content)
        content = self.prefix + content
        at = self.missing
        while len(content) - at >= _PREFIX_BYTES:
            at += _PREFIX_BYTES + int.from_bytes(content[at + 1 : at + _PREFIX_BYTES], "big")
        self.prefix, self.missing = content[at:], max(0, at - len(content))
        self.is_whole = not (self.prefix or self.missing) and 0 < self.size <= MAX_FRAME_BYTES


class FrameLimits:
    """The limits of one connection."""

    def __init__(self) -> None:
        self.is_admitted = False
        self.has_request = False
        """Whether a request has arrived in full."""
        # By stream.
        self._calls: dict[int, _Call] = {}
        # What waits, by number: the parts, and for those with which an incomplete message begins that with its end.
        self._waiting: dict[int, bytes] = {}
        self._ends: dict[int, int] = {}
        self._last = 0
        # The stream of a request that was passed on before its message had arrived.
        self._begun: int | None = None
        # Of the frames of answers: what began, and how much of one is yet to come.
        self._answer, self._unanswered = b"", 0
        self._held = b""
        # Of the preface, or of a message, that are yet to come.
        self._unread = _PREFACE_BYTES
        # The sizes of the entries in the dynamic table, newest first; perhaps of some that were evicted.
        self._entries: deque[int] = deque(maxlen=TABLE_BYTES // _ENTRY_BYTES)
        self._buckets = {kind: LeakyBucket(per_second=rate, burst=burst) for kind, (rate, burst) in _RATES.items()}
        self._others = LeakyBucket(per_second=_OTHERS_PER_SECOND, burst=_OTHERS_AT_ONCE)

    def passed(self, content: bytes, now_at: int) -> list[bytes]:
        """Return what may be passed on of the bytes so far, received at that instant. Until the connection is admitted,
        a part begins with each call, and with other messages that are incomplete. Raises `LimitError`.
        """
        content = self._held + content
        self._last += not self._waiting
        at, end = min(self._unread, len(content)), len(content)
        self._unread -= at
        cuts = [0]
        while not self._unread and end - at >= _HEAD_BYTES:
            length, kind, flags = int.from_bytes(content[at : at + 3], "big"), content[at + 3], content[at + 4]
            if length > MAX_FRAME_BYTES:
                raise LimitError("too large a frame")
            if kind == FrameType.DATA and self.is_admitted:
                self._unread = max(0, at + _HEAD_BYTES + length - end)
            elif end - at < _HEAD_BYTES + length:
                break
            after, part = at + _HEAD_BYTES + length, self._last + len(cuts) - 1
            if not self.is_admitted and self._begins(kind, flags, content[at + 5 : after], part):
                cuts.append(at)
            if kind != FrameType.DATA or length < _SMALL_BYTES:
                self._check(kind, flags, content[at + _HEAD_BYTES : after], now_at)
            at = min(end, after)
        self._held = content[at:]
        for self._last, (begin, cut) in enumerate(pairwise([*cuts, at]), self._last):  # noqa: B020  # from there on
            if begin < cut:
                self._waiting[self._last] = self._waiting.get(self._last, b"") + content[begin:cut]
        return self._arrived()

    def note_answer(self, content: bytes) -> bool:
        """Note which requests are answered, by what the server sends; a client stops sending those without a word.
        Return whether one is.
        """
        content = self._answer + content
        at, is_noted = self._unanswered, False
        while len(content) - at >= _HEAD_BYTES:
            length, kind, flags = int.from_bytes(content[at : at + 3], "big"), content[at + 3], content[at + 4]
            if kind == FrameType.RST_STREAM or (kind in (FrameType.HEADERS, FrameType.DATA) and flags & _END_STREAM):
                stream = _stream_of(content[at + 5 :])
                is_noted |= self._calls.pop(stream, None) is not None or stream == self._begun
                self._begun = None if stream == self._begun else self._begun
            at += _HEAD_BYTES + length
        self._answer, self._unanswered = content[at:], max(0, at - len(content))
        return is_noted

    def _arrived(self) -> list[bytes]:
        """Return the parts after which no request is incomplete; and the next one when much is waiting."""
        if self.is_held:
            return []
        incomplete = (call.part for call in self._calls.values() if not (call.is_whole or self.is_admitted))
        end, count, first = 0, 0, min(incomplete, default=math.inf)
        for index, part in enumerate(self._waiting, 1):
            end = max(end, self._ends.get(part, 0))
            if part >= first:
                break
            if end <= part:
                count = index
        taken = [self._taken() for _ in range(count)]
        if sum(map(len, self._waiting.values())) >= _LARGE_BYTES:
            taken.append(begun := self._taken())
            self._begun = _stream_of(begun[5:])
        return taken

    def _taken(self) -> bytes:
        part = next(iter(self._waiting))
        self._ends.pop(part, None)
        return self._waiting.pop(part)

    @property
    def is_held(self) -> bool:
        """True while reading has to wait for an answer of the server."""
        return not self.is_admitted and self._begun is not None

    def _begins(self, kind: int, flags: int, frame: bytes, part: int) -> bool:
        """Note a frame, without what is before its stream. It is in this part, or in the next one if a message begins
        with it. Return whether one does.
        """
        stream, begins = _stream_of(frame), kind == FrameType.HEADERS
        call = self._calls.setdefault(stream, _Call(part + 1)) if begins else self._calls.get(stream)
        if len(self._calls) > _MAX_CALLS:
            raise LimitError("too many calls")
        if call is None:
            return False
        if kind == FrameType.DATA:
            was_whole = call.is_whole
            call.add(frame[4:])
            if begins := was_whole and not call.is_whole:
                call.part = part + 1
        is_last = kind in (FrameType.HEADERS, FrameType.DATA) and bool(flags & _END_STREAM)
        self.has_request |= is_last or call.is_whole
        if is_last or kind == FrameType.RST_STREAM:
            del self._calls[stream]
            call.is_whole = True
        if call.is_whole and (call.part in self._waiting or call.part > self._last):
            self._ends[call.part] = part + begins
        return begins

    def _check(self, kind: int, flags: int, payload: bytes, now_at: int) -> None:
        if not self.is_admitted and not self._buckets.get(kind, self._others).take(now_at):
            raise LimitError(f"too many frames of type {kind}")
        if kind == FrameType.CONTINUATION or (kind == FrameType.HEADERS and not flags & _END_HEADERS):
            raise LimitError("header fields in more than one frame")
        if kind == FrameType.HEADERS:
            if flags & _PADDED:
                raise LimitError("padded header fields")
            try:
                self._check_fields(payload[5 * bool(flags & _PRIORITY) :])
            except IndexError:
                raise LimitError("malformed header fields") from None

    def _check_fields(self, block: bytes) -> None:
        """Raises `LimitError` if the fields are too large, and `IndexError` if they are malformed."""
        at = size = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 0x7F)
                size += self._entry(index)
            elif first & 0x20 and not first & 0x40:
                # A new size of the table, which is at most the old one.
                _, at = _integer(block, at, 0x1F)
                size += _ENTRY_BYTES
            else:
                is_stored = bool(first & 0x40)
                index, at = _integer(block, at, 0x3F if is_stored else 0x0F)
                name, at = (self._entry(index), at) if index else _string(block, at)
                value, at = _string(block, at)
                if is_stored:
                    self._entries.appendleft(name + value + _ENTRY_BYTES)
                size += name + value + _ENTRY_BYTES
            if size > MAX_FIELDS_BYTES:
                raise LimitError("too large header fields")

    def _entry(self, index: int) -> int:
        return _STATIC_BYTES if index <= _STATIC_ENTRIES else self._entries[index - _STATIC_ENTRIES - 1]


def _stream_of(frame: bytes) -> int:
    """Return the stream of a frame, without what is before it."""
    return int.from_bytes(frame[:4], "big") & _STREAM


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return an integer of RFC 7541 (5.1) in the bits `mask` of a byte and the bytes after it, and where those end."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    for shift in range(0, 7 * _MAX_INTEGER_BYTES, 7):
        number += (block[at] & 0x7F) << shift
        at += 1
        if not block[at - 1] & 0x80:
            return number, at
    raise IndexError


def _string(block: bytes, at: int) -> tuple[int, int]:
    """Return the largest length that a text may have, and where the next part begins."""
    is_shortened = block[at] & _SHORTENED
    length, at = _integer(block, at, 0x7F)
    if at + length > len(block):
        raise IndexError
    return length * 8 // _SHORTEST_BITS if is_shortened else length, at + length
