"""The heads of HTTP responses, as bytes of our own making: a fault may want to send anything."""

from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus

SERVER = "isochrone-sim"
STREAM = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "transfer-encoding": "chunked",
}
LAST_CHUNK = b"0\r\n\r\n"


def head(status: int, headers: Mapping[str, str], *, at: int) -> bytes:
    """Status line and headers up to the blank line; `at` is the wall instant in microseconds."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"server: {SERVER}"]
    lines.append(f"date: {formatdate(at / 1e6, usegmt=True)}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def document(status: int, body: bytes, headers: Mapping[str, str], *, at: int) -> bytes:
    """A response with a body whose length is known, JSON unless `headers` say otherwise."""
    measured = {"content-type": "application/json", **headers, "content-length": str(len(body))}
    return head(status, measured, at=at) + body


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
