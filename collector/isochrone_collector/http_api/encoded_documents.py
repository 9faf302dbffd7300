"""Answers as response bodies, with their entity tags, compressed for clients that accept gzip. Pure.

The length of a compressed body can betray a secret in it to someone who chooses other parts of it and sees the traffic
(BREACH). Here no compressed body has a secret: credentials and the tokens of sessions are in headers, and in the body
of one request. Nor can a page of another site make a browser ask with its session: the cookie is `SameSite=Strict`.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from starlette.datastructures import Headers

from isochrone_collector.http_api.encoded_tables import encode
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.queries.json_text import json_text, plain_text

MIN_COMPRESSED_BYTES = 1_024
"""Bodies below this size, of about one packet, are sent as they are."""

_LEVEL = 6
_REFUSED = re.compile(r"q=0(\.0*)?", re.IGNORECASE)

# They change with the instant of the request.
_VOLATILE = ("window", "answered_at")


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """The bytes of a document, perhaps compressed, and its tag: equal for two answers that differ only in the instant
    of the request or in compression.
    """

    content: bytes
    etag: str
    is_compressed: bool = False


def is_compressible(content: bytes | memoryview) -> bool:
    """Return whether a body is large enough to be compressed."""
    return len(content) >= MIN_COMPRESSED_BYTES


def compress(content: bytes) -> bytes:
    """Compress a body with gzip; equal bodies give equal bytes."""
    return gzip.compress(content, _LEVEL, mtime=0)


def accepts_gzip(headers: Headers) -> bool:
    """Return whether a request names gzip in Accept-Encoding, other than with the weight 0."""
    for item in ",".join(headers.getlist("accept-encoding")).split(","):
        coding, _, weight = item.partition(";")
        if coding.strip().lower() == "gzip":
            return _REFUSED.fullmatch(weight.strip()) is None
    return False


def encode_compressed(answer: object) -> EncodedDocument:
    """Encode an answer as `encode_document` does, and compress it unless it is small."""
    plain = encode_document(answer)
    if not is_compressible(plain.content):
        return plain
    return replace(plain, content=compress(plain.content), is_compressed=True)


def encode_document(answer: object) -> EncodedDocument:
    """Encode an answer: as its document, or as it is if its class has no format. Each row is encoded on its own, so
    that a thread that encodes many of them lets others run.
    """
    format_ = FORMATS.get(type(answer).__name__)
    if format_ is None:
        content = encode(answer)
        return EncodedDocument(content + b"\n", _digest(content))
    head = {"schema": format_.schema, **format_.facts(answer)}
    write = json_text if not format_.inline else lambda row: plain_text(format_.record(row))
    rows = ",".join(write(row) for row in format_.rows_of(answer)).encode()
    content = encode(head).removesuffix(b"}") + b',"rows":[' + rows + b"]}\n"
    return EncodedDocument(content, _digest(encode(_without_volatile(head)), rows))


def _without_volatile(head: Mapping[str, object]) -> dict[str, object]:
    return {name: part for name, part in head.items() if name not in _VOLATILE}


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:32]
