"""Payload measurement of a connection: its bytes without the overhead of TLS. Pure."""

from typing import Protocol

HEADER_BYTES = 5
# TLS 1.3: the authentication tag and the content type.
TLS_OVERHEAD_BYTES = 17
_APPLICATION_DATA = 23


class PayloadMeter(Protocol):
    """Measures the payload of one direction of a connection, chunk by chunk."""

    def payload_bytes(self, data: bytes) -> int:
        """Return the number of payload bytes in a chunk."""
        ...


class PlainTextMeter:
    """Plain text: every byte is payload."""

    def payload_bytes(self, data: bytes) -> int:
        """See `PayloadMeter.payload_bytes`."""
        return len(data)


class TlsMeter:
    """TLS: a record counts in the chunk that completes its header; handshake records count as 0."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def payload_bytes(self, data: bytes) -> int:
        """See `PayloadMeter.payload_bytes`."""
        payload = 0
        while data:
            passed = min(self._left, len(data))
            self._left, data = self._left - passed, data[passed:]
            missing = HEADER_BYTES - len(self._header)
            self._header, data = self._header + data[:missing], data[missing:]
            if len(self._header) == HEADER_BYTES:
                payload += self._begin_record()
        return payload

    def _begin_record(self) -> int:
        kind, self._left = self._header[0], int.from_bytes(self._header[3:], "big")
        self._header = b""
        return max(self._left - TLS_OVERHEAD_BYTES, 0) if kind == _APPLICATION_DATA else 0
