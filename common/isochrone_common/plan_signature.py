"""Signatures of plans: Ed25519, over the encoded plan and the instant of the signature.

An operator signs a plan with a key that the collector does not have. An agent that has pinned the public key runs
exactly the content that was signed, and never a plan that was signed before the one it runs: so a stolen collector can
withhold a plan, but neither change one nor go back to an earlier one. The version of a plan is not signed, because the
collector assigns it; it only names the plan.

The package `cryptography` is imported only where a plan is signed or a key is pinned.
"""

import base64
import binascii
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from isochrone_wire import codec
from isochrone_wire.errors import IsochroneError
from isochrone_wire.model import Plan
from isochrone_wire.v1 import plan_pb2

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_PREFIX = "isochrone-plan-"
_KEY_BYTES = 32
_DOMAIN = b"isochrone plan 1\0"


class SignatureError(IsochroneError):
    """A plan is not signed with the right key. Action: the operator, who signs the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedPlan:
    """The plan that was signed, without its version, the instant of its signature and the public key."""

    plan: Plan
    signed_at: int
    public_key: bytes


def is_available() -> bool:
    """Return whether signatures can be verified here."""
    return find_spec("cryptography") is not None


def format_key(public_key: bytes) -> str:
    """Return the text of a public key."""
    return KEY_PREFIX + base64.urlsafe_b64encode(public_key).decode().rstrip("=")


def parse_key(text: str) -> bytes:
    """Parse the text of a public key. Raises `ValueError`."""
    body = text.strip().removeprefix(KEY_PREFIX)
    try:
        key = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.strip().startswith(KEY_PREFIX) or len(key) != _KEY_BYTES:
        raise ValueError(f"{text!r} is not the public key of plans: it begins with {KEY_PREFIX!r}")
    return key


def sign(plan: Plan, key: "Ed25519PrivateKey", *, signed_at: int) -> bytes:
    """Return the encoded signature of a plan, whatever its version."""
    content = codec.encode(replace(plan, version=0, signature=b"", content_hash=b"")).SerializeToString(
        deterministic=True
    )
    return plan_pb2.PlanSignature(
        content=content,
        signed_at=signed_at,
        public_key=key.public_key().public_bytes_raw(),
        signature=key.sign(_message(content, signed_at)),
    ).SerializeToString()


def verify(encoded: bytes, public_key: bytes | None = None) -> SignedPlan:
    """Return what was signed, by `public_key` or by the key that it names. Raises `SignatureError`."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  # few agents need it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415  # as above

    if not encoded:
        raise SignatureError("the plan is not signed", hint="apply it with --sign KEYFILE")
    try:
        signature = plan_pb2.PlanSignature.FromString(encoded)
        if public_key not in (None, signature.public_key):
            raise SignatureError(
                f"the plan is signed with another key, {format_key(signature.public_key)}",
                hint="sign it with the key that the agents have pinned",
            )
        key = Ed25519PublicKey.from_public_bytes(signature.public_key)
        key.verify(signature.signature, _message(signature.content, signature.signed_at))
        plan = codec.decode(Plan, plan_pb2.Plan.FromString(signature.content))
    except (InvalidSignature, DecodeError, ValueError) as error:
        raise SignatureError("the signature of the plan is not valid", hint="sign the plan again") from error
    return SignedPlan(plan=plan, signed_at=signature.signed_at, public_key=signature.public_key)


def signer(encoded: bytes) -> str | None:
    """Return the public key that a signature names, without a verification; `None` without a signature."""
    return format_key(plan_pb2.PlanSignature.FromString(encoded).public_key) if encoded else None


def _message(content: bytes, signed_at: int) -> bytes:
    return _DOMAIN + signed_at.to_bytes(8, "big", signed=True) + content
