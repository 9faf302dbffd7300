"""Signatures of plans: only the content that was signed with the pinned key is accepted."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from isochrone_common.plan_signature import SignatureError, format_key, parse_key, sign, verify
from isochrone_wire.model import Plan, Target
from isochrone_wire.v1 import plan_pb2

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
TARGET = Target(id=7, name="p/m", provider="p", model="m", base_url="https://api.example.com")
PLAN = Plan(version=3, baseline="us", targets=(TARGET,))
SIGNED = sign(PLAN, KEY, signed_at=5)


def changed(**fields: object) -> bytes:
    message = plan_pb2.PlanSignature.FromString(SIGNED)
    for name, value in fields.items():
        setattr(message, name, value)
    return message.SerializeToString()


def test_what_was_signed_is_returned() -> None:
    """The plan without its version, and the instant; with the pinned key, and with the key that is named."""
    for key in (PUBLIC, None):
        signed = verify(SIGNED, key)
        assert (signed.plan, signed.signed_at, signed.public_key) == (replace(PLAN, version=0), 5, PUBLIC)


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (b"", "is not signed"),
        (b"\xff", "not valid"),
        (sign(PLAN, OTHER, signed_at=5), "another key"),
        (changed(signed_at=6), "not valid"),
        (changed(signature=bytes(64)), "not valid"),
        (changed(content=plan_pb2.Plan(baseline="eu").SerializeToString()), "not valid"),
        (changed(public_key=OTHER.public_key().public_bytes_raw()), "another key"),
        (changed(public_key=b"short"), "another key"),
    ],
)
def test_anything_else_is_refused(signature: bytes, reason: str) -> None:
    """Another content, instant, key or signature raises `SignatureError`, and nothing else."""
    with pytest.raises(SignatureError, match=reason):
        verify(signature, PUBLIC)


def test_without_a_pin_the_signature_is_checked_too() -> None:
    """The collector refuses a signature that does not belong to the key it names."""
    for signature in (changed(public_key=b"short"), changed(public_key=OTHER.public_key().public_bytes_raw())):
        with pytest.raises(SignatureError, match="not valid"):
            verify(signature)


def test_the_text_of_a_key_is_parsed_back() -> None:
    """Other texts are refused."""
    assert parse_key(f" {format_key(PUBLIC)}\n") == PUBLIC
    for text in ("", "isochrone-plan-", format_key(PUBLIC)[:-3], format_key(PUBLIC).removeprefix("isochrone-plan-")):
        with pytest.raises(ValueError, match="not the public key"):
            parse_key(text)
