"""How much a connection carries: its bytes, less what TLS adds to them where it is spoken. Pure."""

from typing import Protocol

HEADER_BYTES = 5
# Of TLS 1.3: the tag, and the byte that says what the record really is.
SEAL_BYTES = 17
_APPLICATION_DATA = 23


class Scale(Protocol):
    """Weighs one direction of a connection, chunk by chunk as it is read."""

    def weigh(self, data: bytes) -> int:
        """How many bytes of the programs' own are in a chunk."""
        ...


class Plain:
    """Where plain text is spoken every byte is the programs' own."""

    def weigh(self, data: bytes) -> int:
        """See `Scale.weigh`."""
        return len(data)


class Ciphered:
    """Under TLS a record counts with the chunk that its header ends in; handshakes in the open weigh nothing."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def weigh(self, data: bytes) -> int:
        """See `Scale.weigh`."""
        weight = 0
        while data:
            passed = min(self._left, len(data))
            self._left, data = self._left - passed, data[passed:]
            missing = HEADER_BYTES - len(self._header)
            self._header, data = self._header + data[:missing], data[missing:]
            if len(self._header) == HEADER_BYTES:
                weight += self._begin_record()
        return weight

    def _begin_record(self) -> int:
        kind, self._left = self._header[0], int.from_bytes(self._header[3:], "big")
        self._header = b""
        return max(self._left - SEAL_BYTES, 0) if kind == _APPLICATION_DATA else 0
