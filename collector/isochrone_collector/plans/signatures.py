"""Signatures of plans at the collector, which checks that they belong to the document, and hands them to agents.

The collector has no pinned key: it accepts any valid signature. Which key is right is decided by the agents.
"""

from collections.abc import Iterator
from dataclasses import replace

from isochrone_collector.errors import BadRequest
from isochrone_common.plan_signature import SignatureError, SignedPlan, format_key, verify
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import Plan


def check(signature: bytes, plan: Plan, in_force: bytes) -> None:
    """Check that a signature is valid, of this plan, and newer than the one in force. Raises `BadRequest`."""
    signed = _verified(signature)
    if signed.plan != replace(plan, version=0):
        raise BadRequest("the signature is of another plan than this collector reads: use the same version of both")
    signed_at = _verified(in_force).signed_at if in_force else 0
    if signed.signed_at <= signed_at:
        raise BadRequest(
            f"the plan was signed at {rfc3339(signed.signed_at)}, before the one in force, of {rfc3339(signed_at)}: "
            "check the clock, and sign it again"
        )


def is_new(signature: bytes, in_force: bytes) -> bool:
    """Return whether a signature is with another key than the one in force, if any."""
    return bool(signature) and (not in_force or _verified(signature).public_key != _verified(in_force).public_key)


def changes(old: bytes, new: bytes) -> Iterator[str]:
    """Yield the change from one signature to another, as a line of `PlanChange.altered`."""
    if old and not new:
        yield "signature: none any more; agents that have pinned a key refuse this plan"
    elif is_new(new, old):
        yield f"signature: {format_key(_verified(new).public_key)}"


def _verified(signature: bytes) -> SignedPlan:
    try:
        return verify(signature)
    except SignatureError as error:
        raise BadRequest(str(error)) from error
