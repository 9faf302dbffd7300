"""HTTP response heads, built as bytes so that faults can send anything."""

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
    """Return the status line and headers up to the blank line; `at` is the wall-clock instant in microseconds."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"server: {SERVER}"]
    lines.append(f"date: {formatdate(at / 1e6, usegmt=True)}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def complete_response(status: int, body: bytes, headers: Mapping[str, str], *, at: int) -> bytes:
    """Return a response with a body of known length, JSON unless `headers` state another type."""
    measured = {"content-type": "application/json", **headers, "content-length": str(len(body))}
    return head(status, measured, at=at) + body


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
