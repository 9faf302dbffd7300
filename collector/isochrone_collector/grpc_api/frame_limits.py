"""Limits of what a connection of HTTP/2 may send, checked before gRPC reads it. Pure.

gRPC decodes all header fields of a frame before it compares their size with its limit, and passes them on even if they
exceed it: 16 kB of references to one field become a megabyte, and 25 ms of the event loop. Neither does it limit how
often a caller opens streams and resets them.

1. The fields of a request, of the size that RFC 9113 (6.5.2) defines, are at most `MAX_FIELDS_BYTES`, in one frame:
   CONTINUATION exists for larger ones only. The fields are measured, not decoded: a string that is compressed counts
   as the longest text that it can be, and a reference (RFC 7541) as the field that was sent.
2. Until the connection is `admitted`, which is when a call has a valid credential, frames are counted by their type,
   and gRPC has at most one request whose message is incomplete: each takes a kilobyte and more until it has arrived. A
   request is passed on with its message, or with the beginning of a large one; nothing more is then read before it is
   answered. So a request without a credential is at most `MAX_FRAME_BYTES`, and one with a credential has any size.
3. Bytes are passed on once their frame is known to be within the limits; with a credential those of messages at once,
   because gRPC limits what it buffers of a message.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
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


# From this size on the beginning of a message is passed on.
_LARGE_BYTES = 4 << 10
# Before a message: whether it is compressed, and its length.
_PREFIX_BYTES = 5
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x4, 0x8, 0x20

# Without a credential, frames per second and at once.
_RATES: Mapping[int, tuple[float, float]] = MappingProxyType(
    {FrameType.HEADERS: (100.0, 200.0), FrameType.RST_STREAM: (1.0, 20.0)}
)
_OTHERS_PER_SECOND, _OTHERS_AT_ONCE = 200.0, 1_000.0
# Frames of a message from this size on are not counted: their bytes cost more than they do.
_SMALL_BYTES = 1 << 10


class LimitError(Exception):
    """The connection has to be closed; the text is the reason."""


class FrameLimits:
    """The limits of one connection."""

    def __init__(self) -> None:
        self.is_admitted = False
        self.has_request = False
        """Whether a request has arrived in full."""
        # The identifiers of streams, and how much of the message is yet to come, once that is known.
        self._arriving: dict[bytes, int | None] = {}
        # What waits for a message that is yet to come: parts, and the stream with which each begins.
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        # The stream of the last request that was passed on before its message had arrived.
        self._begun = b""
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
        a part begins with each call. Raises `LimitError`.
        """
        if self._held:
            content = self._held + content
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
            if not self.is_admitted:
                self._count_requests(kind, flags, content[at + 5 : at + _HEAD_BYTES + length])
                if kind == FrameType.HEADERS:
                    cuts.append(at)
            if kind != FrameType.DATA or length < _SMALL_BYTES:
                self._check(kind, flags, content[at + _HEAD_BYTES : at + _HEAD_BYTES + length], now_at)
            at = min(end, at + _HEAD_BYTES + length)
        self._held = content[at:]
        return list(self._arrived(content[begin:cut] for begin, cut in pairwise([*cuts, at])))

    def note_answer(self, content: bytes) -> None:
        """Note which requests are answered, by what the server sends; a client stops sending those without a word."""
        content = self._answer + content
        at = self._unanswered
        while len(content) - at >= _HEAD_BYTES:
            length, kind, flags = int.from_bytes(content[at : at + 3], "big"), content[at + 3], content[at + 4]
            if kind == FrameType.RST_STREAM or (kind in (FrameType.HEADERS, FrameType.DATA) and flags & _END_STREAM):
                self._arriving.pop(content[at + 5 : at + _HEAD_BYTES], None)
            at += _HEAD_BYTES + length
        self._answer, self._unanswered = content[at:], max(0, at - len(content))

    def _arrived(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the parts up to the first one whose request is yet to arrive, and that one when much is waiting. All
        parts but the first begin with a call.
        """
        more = [(part[5:_HEAD_BYTES] if number else b"", part) for number, part in enumerate(parts) if part]
        self._waiting.extend(more)
        while self._waiting and not self.is_held:
            stream, part = self._waiting[0]
            if not self.is_admitted and stream in self._arriving:
                if sum(len(each) for _, each in self._waiting) < _LARGE_BYTES:
                    return
                self._begun = stream
            self._waiting.popleft()
            yield part

    @property
    def is_held(self) -> bool:
        """Whether nothing is to be read before an answer."""
        return not self.is_admitted and self._begun in self._arriving

    def _count_requests(self, kind: int, flags: int, frame: bytes) -> None:
        """Note a frame, without what is before its stream."""
        stream, is_last = frame[:4], bool(kind in (FrameType.HEADERS, FrameType.DATA) and flags & _END_STREAM)
        if kind == FrameType.HEADERS:
            self._arriving.setdefault(stream, None)
        elif kind == FrameType.DATA and stream in self._arriving:
            message = frame[5 : len(frame) - frame[4]] if flags & _PADDED else frame[4:]
            missing = self._arriving[stream]
            if missing is None and len(message) >= _PREFIX_BYTES:
                missing = _PREFIX_BYTES + int.from_bytes(message[1:_PREFIX_BYTES], "big")
            if missing is not None:
                self._arriving[stream] = missing = missing - len(message)
                is_last |= missing <= 0
        if is_last or kind == FrameType.RST_STREAM:
            self.has_request |= is_last and stream in self._arriving
            self._arriving.pop(stream, None)

    def _check(self, kind: int, flags: int, payload: bytes, now_at: int) -> None:
        if not self.is_admitted and not self._buckets.get(kind, self._others).take(now_at):
            raise LimitError(f"too many frames of type {kind}")
        if kind == FrameType.CONTINUATION or (kind == FrameType.HEADERS and not flags & _END_HEADERS):
            raise LimitError("header fields in more than one frame")
        if kind == FrameType.HEADERS:
            begin = bool(flags & _PADDED) + 5 * bool(flags & _PRIORITY)
            padding = payload[0] if flags & _PADDED and payload else 0
            try:
                self._check_fields(payload[begin : len(payload) - padding])
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
