"""How a webhook's receiver knows who sent it: Standard Webhooks 1.0.0, symmetric signatures. Pure.

What is signed is `{id}.{timestamp}.{body}` with HMAC-SHA256, and the signature is sent as `v1,` and base64. The secret
is random, 24 to 64 bytes, written `whsec_` and base64 (github.com/standard-webhooks/standard-webhooks,
spec/standard-webhooks.md, "Signature scheme").
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE_S = 300
"""How old a message may be, in seconds, so that nobody can send it again later."""

_PREFIX = "whsec_"
_VERSION = "v1"
_LEAST_BYTES, _MOST_BYTES = 24, 64


class Unverified(ValueError):  # noqa: N818  # named for what the message is
    """A message that is not known to come from whoever has the secret. Act: its receiver, by not believing it."""


def written(secret: bytes) -> str:
    """A secret as people keep it."""
    return _PREFIX + base64.b64encode(secret).decode()


def read(text: str) -> bytes:
    """The secret that people keep as `whsec_…`. Raises `ValueError`, whose message never tells it."""
    try:
        secret = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        # The decoder's own error may quote the secret.
        raise ValueError("the secret is not base64") from None
    if not text.strip().startswith(_PREFIX) or not _LEAST_BYTES <= len(secret) <= _MOST_BYTES:
        raise ValueError(f"a secret is {_PREFIX} and the base64 of {_LEAST_BYTES} to {_MOST_BYTES} bytes")
    return secret


def headers(secret: bytes, *, message: str, sent_s: int, body: bytes) -> dict[str, str]:
    """The headers of a message with that id, sent at an instant in seconds since the epoch."""
    return {
        ID: message,
        TIMESTAMP: str(sent_s),
        SIGNATURE: f"{_VERSION},{_signature(secret, message, str(sent_s), body)}",
    }


def verify(secret: bytes, told: Mapping[str, str], body: bytes, *, now_s: int) -> str:
    """The id of a message whose headers, by lower-case names, hold a good signature. Raises `Unverified`."""
    try:
        message, sent, signatures = (told[name] for name in (ID, TIMESTAMP, SIGNATURE))
        age_s = abs(now_s - int(sent))
    except (KeyError, ValueError) as error:
        raise Unverified("a header is missing or cannot be read") from error
    if age_s > TOLERANCE_S:
        raise Unverified(f"its timestamp is {age_s} s off")
    good = f"{_VERSION},{_signature(secret, message, sent, body)}".encode()
    if not any(hmac.compare_digest(good, one.encode()) for one in signatures.split()):
        raise Unverified("its signature is not of this secret and body")
    return message


def _signature(secret: bytes, message: str, sent: str, body: bytes) -> str:
    signed = b".".join((message.encode(), sent.encode(), body))
    return base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
