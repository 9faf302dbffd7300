"""Signatures of webhooks: Standard Webhooks 1.0.0, symmetric signatures. Pure.

The signed content is `{id}.{timestamp}.{body}`, with HMAC-SHA256. The signature is sent as `v1,` and base64. The secret
is random, 24 to 64 bytes, written as `whsec_` and base64 (github.com/standard-webhooks/standard-webhooks,
spec/standard-webhooks.md, "Signature scheme").
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE_S = 300
"""Maximum age of a message, in seconds, which prevents replays."""

_PREFIX = "whsec_"
_VERSION = "v1"
_MIN_BYTES, _MAX_BYTES = 24, 64


class Unverified(ValueError):  # noqa: N818  # named for what the message is
    """The signature of a message is missing, too old or wrong. Act: the receiver, by rejecting the message."""


def format_secret(secret: bytes) -> str:
    """Return a secret in its text form, `whsec_…`."""
    return _PREFIX + base64.b64encode(secret).decode()


def parse_secret(text: str) -> bytes:
    """Return the secret of the text form `whsec_…`. Raises `ValueError`, which never quotes the secret."""
    try:
        secret = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        # The decoder's own error may quote the secret.
        raise ValueError("the secret is not base64") from None
    if not text.strip().startswith(_PREFIX) or not _MIN_BYTES <= len(secret) <= _MAX_BYTES:
        raise ValueError(f"a secret is {_PREFIX} followed by {_MIN_BYTES} to {_MAX_BYTES} bytes in base64")
    return secret


def headers(secret: bytes, *, message: str, sent_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message with that id, sent at an instant in seconds since the epoch."""
    return {
        ID: message,
        TIMESTAMP: str(sent_s),
        SIGNATURE: f"{_VERSION},{_signature(secret, message, str(sent_s), body)}",
    }


def verify(secret: bytes, received: Mapping[str, str], body: bytes, *, now_s: int) -> str:
    """Return the id of a message whose headers, by lower-case name, have a valid signature. Raises `Unverified`."""
    try:
        message, sent, signatures = (received[name] for name in (ID, TIMESTAMP, SIGNATURE))
        age_s = abs(now_s - int(sent))
    except (KeyError, ValueError) as error:
        raise Unverified("a header is missing or malformed") from error
    if age_s > TOLERANCE_S:
        raise Unverified(f"the timestamp is {age_s} s off")
    good = f"{_VERSION},{_signature(secret, message, sent, body)}".encode()
    if not any(hmac.compare_digest(good, one.encode()) for one in signatures.split()):
        raise Unverified("the signature does not match the secret and the body")
    return message


def _signature(secret: bytes, message: str, sent: str, body: bytes) -> str:
    signed = b".".join((message.encode(), sent.encode(), body))
    return base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
