"""Bytes of a call of gRPC over HTTP/2 (RFC 9113), for clients that must cost little or behave badly."""

import asyncio
import struct

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
"""Kinds of frames."""
ACK, END_STREAM, END_HEADERS = 1, 1, 4
"""Flags of frames."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_HEAD_BYTES = 9


def frame_head(size: int, kind: int, *, flags: int = 0, stream: int = 0) -> bytes:
    """Return the head of a frame with `size` bytes of content."""
    return struct.pack(">IBI", size << 8 | kind, flags, stream)


def frame(kind: int, content: bytes, *, flags: int = 0, stream: int = 0) -> bytes:
    """Return a frame."""
    return frame_head(len(content), kind, flags=flags, stream=stream) + content


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Return the kind, the flags and the content of the next frame. Raises `asyncio.IncompleteReadError`."""
    head, flags, _ = struct.unpack(">IBI", await reader.readexactly(_HEAD_BYTES))
    return head & 0xFF, flags, await reader.readexactly(head >> 8)


def call_headers(method: str, *, tls: bool) -> bytes:
    """Return the headers of a call in HPACK, RFC 7541: POST, the scheme, and literals that are not indexed."""

    def text(value: str) -> bytes:
        return bytes([len(value)]) + value.encode()

    named = {"content-type": "application/grpc", "te": "trailers"}
    literals = b"".join(b"\0" + text(name) + text(value) for name, value in named.items())
    scheme = b"\x87" if tls else b"\x86"
    return b"\x83" + scheme + b"\x04" + text(method) + b"\x01" + text("collector") + literals
