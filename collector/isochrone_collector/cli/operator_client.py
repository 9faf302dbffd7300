"""The client of an operator's commands: how they reach a collector, and every question they ask it."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import grpc

from isochrone_collector.errors import CollectorError, CollectorUnreachable, SettingsError
from isochrone_collector.server.operator_identity import FILE_NAME
from isochrone_collector.settings import DEFAULT_LISTEN, parse_collector
from isochrone_common import channel, identity_file
from isochrone_common.address import Address
from isochrone_common.identity_file import Identity, renew_if_due
from isochrone_common.local_socket import data_dir_of, plain_text_refusal, select_collector
from isochrone_common.trust import PLAIN
from isochrone_wire import codec
from isochrone_wire.insights import Alert
from isochrone_wire.operations import (
    Access,
    AccessList,
    AuditTrail,
    Invitation,
    PlanChange,
    PlanDocument,
    PlanHistory,
    Revoked,
    Role,
    Silence,
    SilenceList,
)
from isochrone_wire.v1 import operations_pb2 as messages
from isochrone_wire.v1.operations_pb2_grpc import OperationsStub

Function = TypeVar("Function", bound=Callable[..., Any])

_TIMEOUT_S = 30.0
_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_HINT_OF = {
    grpc.StatusCode.UNAUTHENTICATED: "pass an identity with --identity or ISOCHRONE_IDENTITY; "
    "`serve` writes an operator's into its data folder",
    grpc.StatusCode.PERMISSION_DENIED: "this takes an operator's identity; pass it with --identity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorClient:
    """Calls a collector as an operator. `collector` is an address, `identity` a file that `join` wrote.

    Without `identity` it takes operator.json of the data folder if that is for this address, else it speaks plain text,
    on this machine only. Every method raises `SettingsError`, `CollectorUnreachable`, or `CollectorError` on a refusal.
    """

    collector: str | None = None
    identity: Path | None = None

    @property
    def address(self) -> Address:
        """The collector's address."""
        return self._selected()[0]

    def channel(self) -> grpc.Channel:
        """Open a channel to the collector; close it, or use `with`."""
        address, identity = self._selected()
        try:
            if identity is None:
                return channel.open_channel(address, PLAIN)
            return channel.open_channel(address, identity.trust, identity.credential)
        except ValueError as error:
            hint = "pass the file that `isochrone join` wrote with --identity FILE"
            raise SettingsError(str(error), hint=hint) from error

    def apply(self, document: str, *, dry_run: bool, applied_by: str, signature: bytes = b"") -> PlanChange:
        """Apply a plan document, with its encoded signature, if any."""
        request = messages.ApplyPlanRequest(
            document=document, dry_run=dry_run, applied_by=applied_by, signature=signature
        )
        return codec.decode(PlanChange, self._call("ApplyPlan", request))

    def roll_back(self, to_version: int, *, dry_run: bool, applied_by: str, signature: bytes = b"") -> PlanChange:
        """Apply an earlier version again, with a new signature, if any."""
        request = messages.RollBackPlanRequest(
            to_version=to_version, dry_run=dry_run, applied_by=applied_by, signature=signature
        )
        return codec.decode(PlanChange, self._call("RollBackPlan", request))

    def document(self, version: int | None) -> PlanDocument:
        """One plan as it was written; for `None` the one in force."""
        return codec.decode(PlanDocument, self._call("GetPlan", messages.GetPlanRequest(version=version)))

    def history(self, limit: int) -> PlanHistory:
        """The newest plans."""
        return codec.decode(PlanHistory, self._call("ListPlans", messages.ListPlansRequest(limit=limit)))

    def audit(self, *, since_at: int, limit: int, principal: str, action: str) -> AuditTrail:
        """The newest changes."""
        request = messages.ListAuditRequest(since_at=since_at, limit=limit, principal=principal, action=action)
        return codec.decode(AuditTrail, self._call("ListAudit", request))

    def test_alert(self, receiver: str = "") -> Alert:
        """Send a test alert to one receiver, or to all, and return what came of it."""
        return codec.decode(Alert, self._call("TestAlert", messages.TestAlertRequest(receiver=receiver)))

    def silence(
        self,
        *,
        targets: Sequence[str] = (),
        providers: Sequence[str] = (),
        regions: Sequence[str] = (),
        kinds: Sequence[str] = (),
        duration_us: int,
        reason: str,
    ) -> Silence:
        """Hold the alerts that match for `duration_us` microseconds."""
        request = messages.AddSilenceRequest(
            targets=targets, providers=providers, regions=regions, kinds=kinds, duration_us=duration_us, reason=reason
        )
        return codec.decode(Silence, self._call("AddSilence", request))

    def acknowledge(self, problem: str, *, duration_us: int, reason: str) -> Silence:
        """Acknowledge a problem for `duration_us` microseconds."""
        request = messages.AcknowledgeAlertRequest(id=problem, duration_us=duration_us, reason=reason)
        return codec.decode(Silence, self._call("AcknowledgeAlert", request))

    def end_silence(self, silence_id: int) -> Silence:
        """End a silence or an acknowledgement before its time."""
        return codec.decode(Silence, self._call("EndSilence", messages.EndSilenceRequest(id=silence_id)))

    def silences(self, *, past: bool = False) -> Sequence[Silence]:
        """The silences and acknowledgements in force, or all."""
        return codec.decode(SilenceList, self._call("ListSilences", messages.ListSilencesRequest(past=past))).silences

    def invite(
        self,
        *,
        name: str,
        role: Role,
        region: str | None = None,
        expires_us: int,
        overlap_us: int = 0,
        rotation: bool = False,
        lifetime_us: int | None = None,
    ) -> Invitation:
        """Make a join token, valid for `expires_us` microseconds, for a credential with a lifetime; 0 means none."""
        request = messages.InviteRequest(
            name=name,
            role=role.value,
            region=region,
            expires_us=expires_us,
            overlap_us=overlap_us,
            rotation=rotation,
            lifetime_us=lifetime_us,
        )
        return codec.decode(Invitation, self._call("Invite", request))

    def access(self, roles: Sequence[Role]) -> list[Access]:
        """Credentials and open invitations of these roles, by name."""
        found = self._access()
        return sorted((one for one in found if one.role in roles), key=lambda one: (one.name, one.created_at))

    def revoke(self, name: str, roles: Sequence[Role]) -> int:
        """Revoke all credentials and invitations of a name; return their number. Raises `SettingsError` for a name that
        has another role.
        """
        others = [one for one in self._access() if one.name == name and one.role not in roles]
        if others:
            group = "vantage" if others[0].role is Role.VANTAGE else "access"
            hint = f"isochrone-collector {group} revoke {name}"
            raise SettingsError(f"{name!r} has the role {others[0].role} here", hint=hint)
        return int(self._call("Revoke", messages.RevokeRequest(name=name)).revoked)

    def record_restore(self, *, vantages: bool) -> Revoked:
        """Void what a restored database has revived; return the numbers."""
        return codec.decode(Revoked, self._call("RecordRestore", messages.RecordRestoreRequest(vantages=vantages)))

    def _access(self) -> Sequence[Access]:
        return codec.decode(AccessList, self._call("ListAccess", messages.ListAccessRequest())).access

    def _call(self, method: str, request: Any) -> Any:  # noqa: ANN401  # messages, which the stubs do not tell apart
        with self.channel() as opened:
            try:
                answer = getattr(OperationsStub(opened), method)(request, timeout=_TIMEOUT_S)
            except grpc.RpcError as error:
                raise self.failure(error) from error
            if self.identity is not None:
                renew_if_due(self.identity, _read(self.identity))
            return answer

    def failure(self, error: grpc.RpcError) -> CollectorError:
        """Return a failed call as an error for the operator."""
        address, identity = self._selected()
        return translated(error, address, is_plain=identity is None)

    def _selected(self) -> tuple[Address, Identity | None]:
        written = parse_collector(self.collector) if self.collector else None
        named = _read(self.identity) if self.identity else None
        return select_collector(written, named=named, default=_operator_identity())


def operator_options(function: Function) -> Function:
    """The options `--collector` and `--identity`, as the parameter `client`, an `OperatorClient`."""

    @click.option(
        "--collector",
        envvar="ISOCHRONE_COLLECTOR",
        metavar="HOST:PORT",
        help="The collector, also unix:PATH.  "
        f"[default: the identity's, else the Unix socket of this user's collector, else {DEFAULT_LISTEN}]",
    )
    @click.option(
        "--identity",
        envvar="ISOCHRONE_IDENTITY",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Identity file, as `isochrone join` wrote it.  [default: operator.json in the data folder, if present]",
    )
    @functools.wraps(function)
    def wrapped(*arguments: Any, collector: str | None, identity: Path | None, **more: Any) -> Any:  # noqa: ANN401  # any command's
        return function(*arguments, client=OperatorClient(collector=collector, identity=identity), **more)

    return cast("Function", wrapped)


def translated(error: grpc.RpcError, address: Address, *, is_plain: bool) -> CollectorError:
    """A failed call as an error for the operator: `CollectorUnreachable`, or `CollectorError` with the refusal."""
    # Every error of a call is also the call, which knows its status; the stubs cannot say so.
    call: Any = error
    details = call.details() or call.code().name.lower()
    if _UNTRUSTED in details:
        hint = "its certificate has changed; join again, or use the operator.json that it wrote"
        sentence = f"the collector at {address} is not the one this identity knows: {details}"
        return CollectorUnreachable(sentence, hint=hint)
    if call.code() in _UNREACHABLE:
        if is_plain and (refusal := plain_text_refusal(address)):
            return CollectorError(refusal[0], hint=refusal[1])
        hint = "is `isochrone-collector serve` running?"
        return CollectorUnreachable(f"no collector answers at {address}: {details}", hint=hint)
    return CollectorError(f"the collector refused: {details}", hint=_HINT_OF.get(call.code(), ""))


def _operator_identity() -> Identity | None:
    """The operator.json of this machine's collector, if its owner runs the command."""
    try:
        return identity_file.read(data_dir_of(os.environ) / FILE_NAME)
    except (OSError, ValueError):
        return None


def _read(path: Path) -> Identity:
    try:
        return identity_file.read(path)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}", hint="see --identity") from error
    except ValueError as error:
        raise SettingsError(str(error), hint="`isochrone join` writes such a file") from error
