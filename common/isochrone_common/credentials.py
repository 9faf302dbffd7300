"""The text form of join tokens and credentials. Pure.

A join token contains the fingerprint of the collector's certificate, so that a client can verify the collector before
it sends anything; its secret can be used once. A credential is an id, by which the collector finds the stored hash, and
a secret of 256 random bits. Each has a fixed prefix that people and secret scanners can recognise.
"""

import base64
import binascii
import hashlib
import hmac
import ssl
from dataclasses import dataclass, field

JOIN_PREFIX = "isochrone-join-"
KEY_PREFIX = "isochrone-key-"
SECRET_BYTES = 32
FINGERPRINT_BYTES = 32
CLIENT_KEY_BYTES = 32
_ID_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """An id from 1 to 2^63 - 1 and a secret of 32 bytes, which `repr` omits."""

    id: int
    secret: bytes = field(repr=False)

    def __str__(self) -> str:
        return KEY_PREFIX + _text(self.id.to_bytes(_ID_BYTES, "big") + self.secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """An invitation's id and secret, and the SHA-256 of the collector's certificate (DER), empty without TLS."""

    id: int
    secret: bytes = field(repr=False)
    fingerprint: bytes

    def __str__(self) -> str:
        return JOIN_PREFIX + _text(self.id.to_bytes(_ID_BYTES, "big") + self.secret + self.fingerprint)


def parse_credential(text: str) -> Credential:
    """Parse a credential. Raises `ValueError` with a message that does not contain the text."""
    raw = _bytes(text, KEY_PREFIX, "credential")
    if len(raw) != _ID_BYTES + SECRET_BYTES:
        raise ValueError("the credential has the wrong length: it is truncated, or has extra characters")
    return Credential(id=int.from_bytes(raw[:_ID_BYTES], "big"), secret=raw[_ID_BYTES:])


def parse_join_token(text: str) -> JoinToken:
    """Parse a join token. Raises `ValueError` with a message that does not contain the text."""
    raw = _bytes(text, JOIN_PREFIX, "join token")
    head = _ID_BYTES + SECRET_BYTES
    if len(raw) not in (head, head + FINGERPRINT_BYTES):
        raise ValueError("the join token has the wrong length: it is truncated, or has extra characters")
    return JoinToken(id=int.from_bytes(raw[:_ID_BYTES], "big"), secret=raw[_ID_BYTES:head], fingerprint=raw[head:])


def derive_credential(token: JoinToken, client_key: bytes) -> Credential:
    """Return the credential that a client with this key gets for a token. Neither of the two alone suffices."""
    return _derived(token.secret, b"isochrone credential" + client_key)


def derive_successor(credential: Credential, renewal_key: bytes) -> Credential:
    """Return the successor. `renewal_key` is the collector's, so that an old copy is worth nothing after its end."""
    return _derived(credential.secret, b"isochrone renewal" + renewal_key)


def hash_secret(secret: bytes) -> bytes:
    """Return the hash that the collector stores: plain SHA-256, since 256 random bits do not need a slow hash."""
    return hashlib.sha256(secret).digest()


def fingerprint_of(certificate: str) -> bytes:
    """Return the SHA-256 of the DER form of a certificate (PEM). Raises `ValueError`."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest()


def format_fingerprint(fingerprint: bytes) -> str:
    """Format a fingerprint for people: `SHA256:` and pairs of hexadecimal digits."""
    return "SHA256:" + fingerprint.hex(":").upper()


def _derived(secret: bytes, salt: bytes) -> Credential:
    derived = hmac.digest(secret, salt, "sha512")
    number = int.from_bytes(derived[SECRET_BYTES : SECRET_BYTES + _ID_BYTES], "big") >> 1
    return Credential(id=number or 1, secret=derived[:SECRET_BYTES])


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str, prefix: str, what: str) -> bytes:
    stripped = text.strip()
    if not stripped.startswith(prefix):
        raise ValueError(f"a {what} must begin with {prefix!r}")
    body = stripped.removeprefix(prefix)
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"the {what} contains invalid characters") from None
