"""Sources of the plan: the collector, or a file. A plan that cannot run is refused; the previous one stays."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from isochrone_agent.collector_client import CollectorClient
from isochrone_agent.errors import AgentError, PlanRefused, SettingsError, SpoolError
from isochrone_agent.plan.credentials import Keyring
from isochrone_agent.plan.policy import limit_violations
from isochrone_agent.plan.probe_scheduler import ProbeScheduler
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_common import plan_signature
from isochrone_common.dialects import DIALECTS
from isochrone_common.files import FileWatch
from isochrone_common.plan_signature import SignatureError
from isochrone_wire.codec import CodecError
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import Plan, Target

PLAN_RETRY_SECONDS = 2.0
MAX_REASON_CHARS = 500
_NAMED = 5

log = structlog.get_logger()


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


@dataclass(slots=True)
class PlanWatcher:
    """Keeps the rounds running on the current plan. The plan is stored for a start without a collector; if a new plan
    cannot be run it is refused, and the previous plan stays in force.

    `refused` is the version refused last and the reason, until another plan is applied. A plan is known by its version
    and its content hash, because a restored database gives the same version to another plan.
    """

    _collector: CollectorClient
    _spool: AsyncSpool
    _keyring: Keyring
    _rounds: ProbeScheduler
    _signed_plans: SignedPlans = field(default_factory=SignedPlans)
    refused: tuple[int, str] | None = None
    _refused_hash: bytes = b""
    _refused_plan: Plan | None = None

    async def wait_for_plan(self) -> None:
        """Apply the stored plan, or poll the collector until a plan runs. Receipts name later plans."""
        await self._consider_kept()
        while not (self._rounds.plan.version or await self._fetch() or await self._reconsider()):
            await asyncio.sleep(PLAN_RETRY_SECONDS)

    async def update_to(self, version: int, content_hash: bytes) -> int:
        """Fetch the plan if it is not the running one; return the version that is running afterwards."""
        if self.refused and (version, content_hash) == (self.refused[0], self._refused_hash):
            await self._reconsider()
        elif version and (version, content_hash) != (self._rounds.plan.version, self._rounds.plan.content_hash):
            await self._fetch(version, content_hash)
        return self._rounds.plan.version

    async def _consider_kept(self) -> None:
        try:
            kept = await self._spool.last_plan()
        except (SpoolError, CodecError, DecodeError) as error:
            # The next plan that is fetched replaces it.
            log.error("plan.unreadable", reason=str(error))  # noqa: TRY400  # no traceback
            return
        except Exception as error:  # a bug in the agent: a stored plan must not make every start fail
            log.exception("plan.unreadable", reason=str(error))
            return
        if kept is not None:
            await self._consider(kept)

    async def _fetch(self, version: int = 0, content_hash: bytes = b"") -> bool:
        """Fetch the current plan, `version` if known; return true if any plan is running afterwards."""
        try:
            plan = await self._collector.fetch_plan(self._rounds.plan.version or None, self._rounds.plan.content_hash)
        except grpc.aio.AioRpcError as error:
            log.warning("plan.unavailable", status=error.code().name, details=error.details())
            return False
        except (CodecError, DecodeError) as error:
            refusal = PlanRefused(f"cannot decode the plan: {error}", hint="upgrade this agent, or the collector")
        except Exception as error:  # a bug in the agent must not end it
            log.exception("plan.failed", version=version)
            refusal = _failure(error)
        else:
            if plan is not None and plan.version:
                await self._consider(plan)
            return bool(self._rounds.plan.version)
        self._refused_plan, self._refused_hash = None, content_hash
        self._refuse(version, refusal)
        return bool(self._rounds.plan.version)

    async def _reconsider(self) -> bool:
        """Check the refused plan again, as the credentials may have changed; return true if any plan is running."""
        if self._refused_plan is not None:
            await self._consider(self._refused_plan)
        return bool(self._rounds.plan.version)

    async def _consider(self, plan: Plan) -> None:
        """Apply and store the plan, or refuse it for any error; then the previous plan stays in force."""
        try:
            verified = self._signed_plans.verified(plan)
            check_plan(verified, self._keyring)
            self._rounds.apply_plan(verified)
        except PlanRefused as error:
            refusal = error
        except Exception as error:  # a bug in the agent must not end it, nor every later start
            log.exception("plan.failed", version=plan.version)
            refusal = _failure(error)
        else:
            self._signed_plans.accept(verified)
            self.refused = self._refused_plan = None
            try:
                await self._spool.save_plan(verified)
            except SpoolError as error:
                # The plan runs anyway; only a start without a collector would lack it.
                log.error("plan.not_stored", version=plan.version, reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback
            return
        self._refused_plan, self._refused_hash = plan, plan.content_hash
        self._refuse(plan.version, refusal)

    def _refuse(self, version: int, error: PlanRefused) -> None:
        # The version of a plan that cannot be decoded is unknown, unless the receipt of a push named it.
        version = version or (self.refused[0] if self.refused else 0)
        refused = (version, str(error)[:MAX_REASON_CHARS])
        if refused != self.refused:
            log.error("plan.refused", version=version, reason=refused[1], hint=error.hint)
        self.refused = refused


def check_plan(plan: Plan, keyring: Keyring) -> None:
    """Raise `PlanRefused` if this agent must not run `plan`. A missing key only skips rounds."""
    if violations := limit_violations(plan):
        more = f"; and {len(violations) - _NAMED} more" if len(violations) > _NAMED else ""
        raise PlanRefused(
            "; ".join(violations[:_NAMED]) + more, hint="correct the plan, and check that this is your own collector"
        )
    problems = [problem for target in plan.targets if (problem := _problem(target, keyring))]
    if problems:
        raise PlanRefused("; ".join(problems), hint="correct the plan, or this agent's file of --credentials")


def _problem(target: Target, keyring: Keyring) -> str | None:
    if target.dialect not in DIALECTS:
        return f"{target.name} uses the dialect {target.dialect!r}, which this agent does not support"
    credential = keyring.credential(target.credential) if target.credential else None
    return credential.refusal(target) if credential else None


def _failure(error: Exception) -> PlanRefused:
    return PlanRefused(f"the agent failed on the plan: {type(error).__name__}", hint="report this bug, with the log")


class PlanFile:
    """Keeps the rounds running on a plan file, whose versions count from 1. `refused`: one that cannot be run."""

    def __init__(self, path: Path, keyring: Keyring, rounds: ProbeScheduler) -> None:
        self._path = path
        self._keyring = keyring
        self._rounds = rounds
        self._version = 0
        self._watch = FileWatch([path])
        self.refused: tuple[int, str] | None = None

    async def load(self) -> None:
        """Run the plan of the file. Raises `SettingsError` and `PlanRefused`."""
        self._version += 1
        plan = await asyncio.to_thread(read_plan, self._path, self._version)
        check_plan(plan, self._keyring)
        self._rounds.apply_plan(plan)
        self.refused = None

    async def reload_if_changed(self) -> None:
        """Run the plan of the file again if it was changed."""
        if not self._watch.changed():
            return
        try:
            await self.load()
        except AgentError as error:
            self.refused = (self._version, str(error))
            log.error("plan.refused", version=self._version, reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback


def read_plan(path: Path, version: int) -> Plan:
    """Return the plan of a file. Raises `SettingsError` with all problems of its text."""
    try:
        # Only an agent without a collector needs pydantic and PyYAML.
        from isochrone_wire.plan_document.document import load  # noqa: PLC0415
    except ImportError as error:
        hint = "install the extra `standalone`: pip install 'isochrone[standalone]'"
        raise SettingsError(f"plan files cannot be read without the package {error.name}", hint=hint) from error
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", hint="see isochrone-agent run --help") from error
    reading = load(text, version=version)
    if reading.plan is None:
        raise SettingsError(f"{path}: {'; '.join(reading.problems)}", hint="see docs/collector.md, Plans")
    return reading.plan
