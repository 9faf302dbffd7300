"""Answers as response bodies, with their entity tags. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from isochrone_collector.http_api.encoded_tables import encode
from isochrone_wire.queries.documents import FORMATS

# They change with the instant of the request.
_VOLATILE = ("window", "answered_at")


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """The bytes of a document, and its tag: equal for two answers that differ only in the instant of the request."""

    content: bytes
    etag: str


def encode_document(answer: object) -> EncodedDocument:
    """Encode an answer: as its document, or as it is if its class has no format. Each row is encoded on its own, so
    that a thread that encodes many of them lets others run.
    """
    format_ = FORMATS.get(type(answer).__name__)
    if format_ is None:
        content = encode(answer)
        return EncodedDocument(content + b"\n", _digest(content))
    head = {"schema": format_.schema, **format_.facts(answer)}
    rows = b",".join(encode(format_.record(row)) for row in format_.rows_of(answer))
    content = encode(head).removesuffix(b"}") + b',"rows":[' + rows + b"]}\n"
    return EncodedDocument(content, _digest(encode(_without_volatile(head)), rows))


def _without_volatile(head: Mapping[str, object]) -> dict[str, object]:
    return {name: part for name, part in head.items() if name not in _VOLATILE}


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:32]
