"""The reader of one response: it makes signals of the bytes of a stream, or of what was sent in its place. Pure."""

from isochrone_common.dialects.base import Dialect
from isochrone_common.dialects.failures import title_of, unframed_failure
from isochrone_common.dialects.signals import DONE, Failed, Signal
from isochrone_common.sse import Event, SseDecoder, is_json_text
from isochrone_wire.model import Outcome

# The first bytes of what is compressed without a header that states it.
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_NO_EVENT = "the response contains no event of a stream"


class ResponseReader:
    """Reads the body of one response with status 200 in a dialect. The boundaries of the reads change nothing."""

    __slots__ = ("_begun", "_decoder", "_dialect", "_has_events")

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._decoder = SseDecoder()
        self._has_events = False
        self._begun = b""

    def receive(self, data: bytes) -> list[Signal]:
        """Return the signals that these bytes complete. Raises `SseOverflow`."""
        events = self._decoder.receive(data)
        # An error without framing may have no end of line, and its connection may stay open.
        if is_json_text(begun := self._decoder.begun):
            self._begun = begun
            events.append(Event(begun, is_framed=False))
        return self._interpret(events)

    def end(self) -> list[Signal]:
        """Return the signals that the end of the response completes, and the failure that its other text states."""
        # What is cut in the middle is no frame, and what was read before is not read again.
        whole = [event for event in self._decoder.end() if event.data != self._begun and _is_whole(event)]
        signals, text = self._interpret(whole), self._decoder.unframed
        if failure := unframed_failure(text):
            signals.append(failure)
        elif text and not self._has_events:
            compression = next((name for magic, name in _COMPRESSIONS.items() if text.startswith(magic)), "")
            title = f"it is compressed ({compression})" if compression else title_of(text)
            error = f"{_NO_EVENT}: {title}" if title else _NO_EVENT
            signals.append(Failed(outcome=Outcome.GARBLED, error=error))
        return signals

    def _interpret(self, events: list[Event]) -> list[Signal]:
        self._has_events = self._has_events or any(event.is_framed for event in events)
        return [signal for event in events for signal in self._dialect.interpret(event)]


def _is_whole(event: Event) -> bool:
    data = event.data.strip()
    return data == DONE.reason.encode() or is_json_text(data) or data[:1] not in b"{["
