"""Plans that must be signed: the pinned key, and the newest signature that this agent has accepted."""

from dataclasses import replace

from isochrone_agent.errors import PlanRefused, SettingsError
from isochrone_common import plan_signature
from isochrone_common.plan_signature import SignatureError
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import Plan


class SignedPlans:
    """Accepts plans that are signed with `key`, each signed no earlier than those before; without a key, every plan."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key
        self._signed_at = 0

    def verified(self, plan: Plan) -> Plan:
        """Return the plan that was signed, with the version and signature of `plan`. Raises `PlanRefused`."""
        if self.key is None:
            return plan
        try:
            signed = plan_signature.verify(plan.signature, self.key)
        except SignatureError as error:
            raise PlanRefused(str(error), hint=error.hint) from error
        if signed.signed_at < self._signed_at:
            raise PlanRefused(
                f"the plan was signed at {rfc3339(signed.signed_at)}, before one that ran here, of "
                f"{rfc3339(self._signed_at)}",
                hint="go back to an earlier plan with `isochrone-collector plan rollback --sign`, which signs it again",
            )
        return replace(signed.plan, version=plan.version, signature=plan.signature, content_hash=plan.content_hash)

    def accept(self, plan: Plan) -> None:
        """Refuse from now on what was signed before this verified plan."""
        if self.key is not None:
            self._signed_at = plan_signature.verify(plan.signature, self.key).signed_at


def pinned_key(text: str | None) -> bytes | None:
    """Return the key of a text, `None` without one. Raises `SettingsError`, also if plans cannot be verified here."""
    if text is None:
        return None
    if not plan_signature.is_available():
        hint = "pip install 'isochrone[signed-plans]'"
        raise SettingsError("a plan key is pinned, and the package cryptography is not installed", hint=hint)
    try:
        return plan_signature.parse_key(text)
    except ValueError as error:
        raise SettingsError(str(error), hint="`isochrone-collector plan key FILE` prints it") from error
