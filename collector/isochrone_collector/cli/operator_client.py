"""The shared parts of operators' commands: the client of a collector, options, and the question for confirmation."""

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import grpc

from isochrone_collector.errors import CollectorAbsent, CollectorError, CollectorUnreachable, SettingsError
from isochrone_collector.server.certificates import FILE_NAME
from isochrone_collector.settings import DEFAULT_LISTEN, parse_collector
from isochrone_common import channel, identity_file
from isochrone_common.address import Address
from isochrone_common.identity_file import Identity, renew_if_due
from isochrone_common.local_socket import data_dir_of, plain_text_refusal, select_collector
from isochrone_common.trust import PLAIN
from isochrone_wire import codec
from isochrone_wire.durations import parse_us
from isochrone_wire.operations import Access, AccessList, Role
from isochrone_wire.v1 import operations_pb2 as messages
from isochrone_wire.v1.operations_pb2_grpc import OperationsStub

Answer = TypeVar("Answer")
Function = TypeVar("Function", bound=Callable[..., Any])

_TIMEOUT_S, _RETRY_S = 30.0, 0.5
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
    A collector that does not answer yet is waited for, up to `patience_s` seconds.
    """

    collector: str | None = None
    identity: Path | None = None
    patience_s: float = 0.0

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

    def call(self, method: str, answer: type[Answer], **fields: Any) -> Answer:  # noqa: ANN401  # fields of any request
        """Call a method of the service `Operations` with the fields of its request, and return the answer as a value
        of that class.
        """
        until_s, has_told = time.monotonic() + self.patience_s, False
        while True:
            try:
                return self._call(method, answer, **fields)
            except CollectorAbsent:
                if time.monotonic() >= until_s:
                    raise
                if not has_told:
                    click.echo(
                        f"no collector answers at {self.address} yet; waiting up to {self.patience_s:g} s", err=True
                    )
                has_told = True
                time.sleep(_RETRY_S)

    def _call(self, method: str, answer: type[Answer], **fields: Any) -> Answer:  # noqa: ANN401  # as `call`
        request = getattr(messages, f"{method}Request")(**fields)
        with self.channel() as opened:
            try:
                found = getattr(OperationsStub(opened), method)(request, timeout=_TIMEOUT_S)
            except grpc.RpcError as error:
                raise self.failure(error) from error
            if self.identity is not None:
                renew_if_due(self.identity, _read(self.identity))
            return codec.decode(answer, found)

    def access(self, roles: Sequence[Role]) -> list[Access]:
        """Return the credentials and open invitations of these roles, by name."""
        found = self.call("ListAccess", AccessList).access
        return sorted((one for one in found if one.role in roles), key=lambda one: (one.name, one.created_at))

    def failure(self, error: grpc.RpcError) -> CollectorError:
        """Return a failed call as an error for the operator."""
        address, identity = self._selected()
        # Every error of a call is also the call, which knows its status; the stubs cannot say so.
        call: Any = error
        details = call.details() or call.code().name.lower()
        if _UNTRUSTED in details:
            hint = "its certificate has changed; join again, or use the operator.json that it wrote"
            sentence = f"the collector at {address} is not the one this identity knows: {details}"
            return CollectorUnreachable(sentence, hint=hint)
        if (remedy := channel.hint_of(call)) is not None:
            return CollectorUnreachable(f"the collector at {address} failed: {details}", hint=remedy)
        if call.code() in _UNREACHABLE:
            if identity is None and (refusal := plain_text_refusal(address)):
                return CollectorError(refusal[0], hint=refusal[1])
            hint = "is `isochrone-collector serve` running?"
            return CollectorAbsent(f"no collector answers at {address}: {details}", hint=hint)
        return CollectorError(f"the collector refused: {details}", hint=_HINT_OF.get(call.code(), ""))

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
        help="Identity file, as `isochrone join` wrote it.  [default: operator.json in the data folder, if present]",
    )
    @functools.wraps(function)
    def wrapped(*arguments: Any, collector: str | None, identity: Path | None, **more: Any) -> Any:  # noqa: ANN401  # any command's
        return function(*arguments, client=OperatorClient(collector=collector, identity=identity), **more)

    return cast("Function", wrapped)


def microseconds(_context: click.Context, _parameter: click.Parameter, written: str) -> int:
    """Parse the duration of an option. Raises `click.BadParameter`."""
    try:
        return parse_us(written)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def duration_option(name: str, parameter: str, default: str, text: str) -> Callable[[Function], Function]:
    """An option with a duration, which the command gets in microseconds."""
    return click.option(
        name, parameter, callback=microseconds, default=default, show_default=True, metavar="DURATION", help=text
    )


data_dir_option = click.option(
    "--data-dir",
    envvar="ISOCHRONE_DATA_DIR",
    type=click.Path(path_type=Path),
    callback=lambda _context, _parameter, given: (given or data_dir_of(os.environ)).absolute(),
    help="The data folder of `serve`.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask the question on stderr unless `yes`, and end the command without confirmation.

    Raises `SettingsError` without a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError("cannot ask for confirmation: stdin is not a terminal", hint="pass --yes")
    click.confirm(question, abort=True, err=True)


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
