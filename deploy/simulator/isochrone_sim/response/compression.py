"""Compression of streams: each event is flushed, so that it can be read as soon as it is there."""

import zlib
from typing import Protocol

# What makes zlib put gzip's header and trailer around.
_GZIP_BITS = 31
# A stream is compressed while others wait for their tokens: quick and small rather than dense.
_LEVEL, _MEMORY = 1, 5


class Encoding(Protocol):
    """What becomes of the bytes of a body. `name` is that of the content encoding, empty for none."""

    name: str

    def event(self, data: bytes) -> bytes:
        """What goes on the wire for these bytes; whoever has it can read them all."""
        ...

    def end(self) -> bytes:
        """What goes on the wire when all is said."""
        ...


class Identity:
    """Every byte as it is."""

    name = ""

    def event(self, data: bytes) -> bytes:
        """See `Encoding.event`."""
        return data

    def end(self) -> bytes:
        """See `Encoding.end`."""
        return b""


class Gzip:
    """gzip, flushed with every event."""

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
    """Whether a client's `Accept-Encoding` allows gzip; it has to name it."""
    for offer in accept_encoding.lower().split(","):
        name, _, quality = offer.partition(";")
        if name.strip() == "gzip":
            return quality.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
