"""Compression of streams: every event is flushed, so that the client can decode it at once."""

import zlib
from typing import Protocol

# Makes zlib add gzip's header and trailer.
_GZIP_BITS = 31
# Other streams wait while one is compressed: prefer speed and little memory over a small size.
_LEVEL, _MEMORY = 1, 5


class Encoding(Protocol):
    """A content encoding. `name` is its HTTP name, empty for none."""

    name: str

    def event(self, data: bytes) -> bytes:
        """Return the encoded bytes of an event; the client can decode all of them at once."""
        ...

    def end(self) -> bytes:
        """Return the final bytes of the body."""
        ...


class Identity:
    """No encoding."""

    name = ""

    def event(self, data: bytes) -> bytes:
        """See `Encoding.event`."""
        return data

    def end(self) -> bytes:
        """See `Encoding.end`."""
        return b""


class Gzip:
    """gzip, flushed after every event."""

    name = "gzip"

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_BITS, _MEMORY)

    def event(self, data: bytes) -> bytes:
        """See `Encoding.event`."""
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """See `Encoding.end`."""
        return self._compressor.flush()


def wants_gzip(accept_encoding: str) -> bool:
    """Return true if the client's `Accept-Encoding` names gzip and allows it."""
    for offer in accept_encoding.lower().split(","):
        name, _, quality = offer.partition(";")
        if name.strip() == "gzip":
            return quality.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
