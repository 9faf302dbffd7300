"""Decoder of server-sent events, after the WHATWG grammar.

The laws:

1. The boundaries of the reads never change the events.
2. A line ends at LF, CRLF or a lone CR only; U+2028 and similar characters are ordinary text.
3. An event ends at a blank line. Data without one at the end of the stream is an event for `end` only.
4. Memory is bounded: a line or an event larger than `limit` bytes is an `SseOverflow`.
5. Beyond the grammar, a field `error` is an event of that name (llama.cpp sends it), and the first `UNFRAMED_BYTES` of
   lines that have no field of an event are kept: some servers send their error body without framing. As soon as they
   are JSON, they are an event in its place among the others, and its `is_framed` is false.
6. Beyond the grammar, a line of data that is a JSON object ends its event, with or without a blank line after it.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6.
"""

import json
from dataclasses import dataclass

LIMIT_BYTES = 1 << 20
UNFRAMED_BYTES = 8 << 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A comment has an empty name.
_IGNORED = (b"", b"id", b"retry")
FIELDS = (b"data", b"event", b"error", b"id", b"retry")


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event: its `data` lines joined by LF, and its type, empty for the default `message`."""

    data: bytes
    name: bytes = b""
    is_framed: bool = True


class SseOverflow(ValueError):  # noqa: N818  # named for the event; it becomes a garbled sample, not a crash
    """A line or an event exceeds the size limit of the decoder."""


class SseDecoder:
    """Decodes the reads of one stream into events. `limit` is the maximum size of a line or an event in bytes."""

    __slots__ = ("_after_cr", "_at_start", "_data", "_limit", "_line", "_line_size", "_name", "_size", "_unframed")

    def __init__(self, *, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._size = 0
        self._name = b""
        self._after_cr = False
        self._at_start = True
        self._unframed = bytearray()

    @property
    def unframed(self) -> bytes:
        """The lines so far that have no field of an event and are no JSON, at most `UNFRAMED_BYTES`."""
        return bytes(self._unframed)

    @property
    def begun(self) -> bytes:
        """The line that has begun, if it may be an error without framing."""
        is_json = self._line and self._line[0][:1] in (b"{", b"[") and self._line_size <= UNFRAMED_BYTES
        return b"".join(self._line) if is_json else b""

    def end(self) -> list[Event]:
        """Return the events that the end of the stream completes."""
        line, self._line, self._line_size = b"".join(self._line), [], 0
        # What is left of a field is no line without one.
        is_cut = any(field.startswith(line) for field in FIELDS)
        return [event for last in (b"" if is_cut else line, b"") if (event := self._take(last))]

    def receive(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete. Raises `SseOverflow`."""
        data = self._with_plain_line_ends(data)
        head, newline, rest = data.partition(b"\n")
        self._hold(head)
        if not newline:
            return []
        *lines, last = rest.split(b"\n")
        first = b"".join(self._line)
        self._line, self._line_size = [], 0
        events = [event for line in (first, *lines) if (event := self._take(line))]
        self._hold(last)
        return events

    def _with_plain_line_ends(self, data: bytes) -> bytes:
        if not data:
            return data
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _hold(self, piece: bytes) -> None:
        self._line_size += len(piece)
        if self._line_size > self._limit:
            raise SseOverflow(f"a line of the stream is longer than {self._limit} bytes")
        if piece:
            self._line.append(piece)

    def _take(self, line: bytes) -> Event | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if field in (b"data", b"error", b"event"):
            value = value.removeprefix(b" ")
            self._name = {b"event": value, b"error": field}.get(field, self._name)
            if field != b"event":
                self._add(value)
                return self._complete()
            return None
        return None if field in _IGNORED else self._take_unframed(line)

    def _add(self, value: bytes) -> None:
        self._size += len(value) + bool(self._data)  # and the LF that joins the two
        if self._size > self._limit:
            raise SseOverflow(f"an event of the stream is larger than {self._limit} bytes")
        self._data.append(value)

    def _take_unframed(self, line: bytes) -> Event | None:
        """Return the JSON that this line completes, or is."""
        self._unframed += (line + b"\n")[: UNFRAMED_BYTES - len(self._unframed)]
        for text in (self.unframed, line[:UNFRAMED_BYTES]):
            if is_json_text(text):
                self._unframed.clear()
                return Event(text.strip(), is_framed=False)
        return None

    def _complete(self) -> Event | None:
        """Return the event whose data is one line with a JSON object."""
        is_whole = len(self._data) == 1 and self._data[0][:1] == b"{" and is_json_text(self._data[0])
        return self._dispatch() if is_whole else None

    def _dispatch(self) -> Event | None:
        event = Event(b"\n".join(self._data), self._name) if self._data else None
        self._data, self._size, self._name = [], 0, b""
        return event


def is_json_text(text: bytes) -> bool:
    """Return true if a text is a JSON object or list that is not empty."""
    stripped = text.strip()
    if (stripped[:1], stripped[-1:]) not in ((b"{", b"}"), (b"[", b"]")):
        return False
    try:
        return bool(json.loads(stripped.decode(errors="replace")))
    except (ValueError, RecursionError):
        return False
