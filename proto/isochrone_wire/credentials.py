"""Join tokens and credentials as texts: what an operator copies, what an agent keeps. Pure.

A join token carries the fingerprint of the collector's certificate, so that whoever joins knows whom it talks to before
it says anything; the secret in it is good once. A credential is an id, by which the collector finds the hash, and 256
bits that only its owner has. Both begin with a word that tells a secret scanner, and a person, what they are.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass, field

JOIN_PREFIX = "isochrone-join-"
KEY_PREFIX = "isochrone-key-"
SECRET_BYTES = 32
FINGERPRINT_BYTES = 32
_ID_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """An id from 1 to 2^63 - 1 and a secret of 32 bytes, which no `repr` shows."""

    id: int
    secret: bytes = field(repr=False)

    def __str__(self) -> str:
        return KEY_PREFIX + _text(self.id.to_bytes(_ID_BYTES, "big") + self.secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """An invitation's id and secret, and the SHA-256 of the collector's certificate (DER); empty when the collector
    speaks plain text on loopback.
    """

    id: int
    secret: bytes = field(repr=False)
    fingerprint: bytes

    def __str__(self) -> str:
        return JOIN_PREFIX + _text(self.id.to_bytes(_ID_BYTES, "big") + self.secret + self.fingerprint)


def parse_credential(text: str) -> Credential:
    """The credential that `text` spells. Raises `ValueError` with a sentence that does not repeat the text."""
    raw = _bytes(text, KEY_PREFIX, "credential")
    if len(raw) != _ID_BYTES + SECRET_BYTES:
        raise ValueError("the credential is cut short or has something added to it")
    return Credential(id=int.from_bytes(raw[:_ID_BYTES], "big"), secret=raw[_ID_BYTES:])


def parse_join_token(text: str) -> JoinToken:
    """The join token that `text` spells. Raises `ValueError` with a sentence that does not repeat the text."""
    raw = _bytes(text, JOIN_PREFIX, "join token")
    head = _ID_BYTES + SECRET_BYTES
    if len(raw) not in (head, head + FINGERPRINT_BYTES):
        raise ValueError("the join token is cut short or has something added to it")
    return JoinToken(id=int.from_bytes(raw[:_ID_BYTES], "big"), secret=raw[_ID_BYTES:head], fingerprint=raw[head:])


def hash_secret(secret: bytes) -> bytes:
    """What a collector keeps of a secret. Plain SHA-256: 256 random bits need no slow hash."""
    return hashlib.sha256(secret).digest()


def format_fingerprint(fingerprint: bytes) -> str:
    """A fingerprint as people compare it: `SHA256:` and pairs of hex digits."""
    return "SHA256:" + fingerprint.hex(":").upper()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str, prefix: str, what: str) -> bytes:
    stripped = text.strip()
    if not stripped.startswith(prefix):
        raise ValueError(f"a {what} begins with {prefix!r}")
    body = stripped.removeprefix(prefix)
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"the {what} holds characters that do not belong there") from None
