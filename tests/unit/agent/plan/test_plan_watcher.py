"""Plans that must be signed: no other content, and none that is older than what ran."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from isochrone_agent.errors import PlanRefused, SettingsError
from isochrone_agent.plan.plan_watcher import SignedPlans, pinned_key
from isochrone_common import plan_signature
from isochrone_wire.model import Plan

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()


def signed(baseline: str, at: int) -> Plan:
    """Return a plan of version 7 with its signature."""
    plan = Plan(version=7, baseline=baseline)
    return replace(plan, signature=plan_signature.sign(plan, KEY, signed_at=at))


def test_the_signed_content_runs() -> None:
    """Only the signed content runs, under the collector's version; an earlier signature is refused."""
    plan = replace(signed("us", 5), baseline="changed", version=8)
    assert SignedPlans(PUBLIC).verified(plan) == replace(signed("us", 5), version=8)
    plans = SignedPlans(PUBLIC)
    plans.verified(signed("ap", 9))
    plans.accept(plans.verified(signed("us", 5)))
    assert plans.verified(signed("us", 5)).baseline == "us"
    with pytest.raises(PlanRefused, match="before one that ran here"):
        plans.verified(signed("eu", 4))
    assert plans.verified(signed("eu", 6)).baseline == "eu"


def test_without_a_key_every_plan_runs() -> None:
    """A signature is not needed, and not looked at."""
    plan = Plan(version=1, baseline="us", signature=b"?")
    plans = SignedPlans()
    assert plans.verified(plan) is plan
    plans.accept(plan)


def test_a_key_needs_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that cannot verify plans does not start with a pinned key, and the hint names the extra."""
    assert pinned_key(None) is None
    assert pinned_key(plan_signature.format_key(PUBLIC)) == PUBLIC
    with pytest.raises(SettingsError, match="not the public key"):
        pinned_key("x")
    monkeypatch.setattr(plan_signature, "is_available", lambda: False)
    with pytest.raises(SettingsError) as refused:
        pinned_key(plan_signature.format_key(PUBLIC))
    assert "isochrone[signed-plans]" in refused.value.hint
