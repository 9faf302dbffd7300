"""`join` of an agent and of a reader: trade a one-time token for an identity, and write that to a file."""

import functools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import click

from isochrone_common import identity_file
from isochrone_common.address import Address, parse_address
from isochrone_common.credentials import parse_join_token
from isochrone_common.identity_file import Identity
from isochrone_common.trust import ClientCertificate, Trust, client_certificate, read_authorities
from isochrone_wire import __version__
from isochrone_wire.errors import IsochroneError
from isochrone_wire.operations import Role

Function = TypeVar("Function", bound=Callable[..., Any])

_FILE = click.Path(path_type=Path, dir_okay=False)
_NO_TOKEN_HINT = (
    "pass --token, --token-file (- is stdin) or ISOCHRONE_JOIN_TOKEN; an operator makes a token with "
    "isochrone-collector vantage add or access add"
)
_OPTIONS = (
    click.argument("address", metavar="ADDRESS"),
    click.option("--token", envvar="ISOCHRONE_JOIN_TOKEN", metavar="TOKEN", help="The token. `ps` shows it to others."),
    click.option("--token-file", type=click.File(), metavar="FILE", help="A file that holds the token; - is stdin."),
    click.option(
        "--ca",
        metavar="FILE",
        help="Certificate authorities (PEM) that the collector is verified by from now on; `system` for this machine's."
        "  [default: its present certificate]",
    ),
    click.option(
        "--client-certificate",
        type=_FILE,
        help="Client certificate (PEM) for a collector that asks for one (mTLS).",
    ),
    click.option("--client-key", type=_FILE, help="Key of the client certificate (PEM)."),
)


class JoinSettingsError(IsochroneError):
    """An option of `join`, or the place for the identity, is wrong. Act: the person who joins."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """The collector to join, the token, and the certificates. With `authorities` they verify the collector later on."""

    address: Address
    token: str = field(repr=False)
    authorities: Trust | None = None
    client: ClientCertificate | None = None


def options(function: Function) -> Function:
    """The argument ADDRESS and the options that every `join` has, as the parameter `request`, a `JoinRequest`."""

    @functools.wraps(function)
    def wrapped(
        *,
        address: str,
        token: str | None,
        token_file: IO[str] | None,
        ca: str | None,
        client_certificate: Path | None,
        client_key: Path | None,
        **more: Any,  # noqa: ANN401  # any command's
    ) -> Any:  # noqa: ANN401  # any command's
        text = token_file.read() if token_file else token
        return function(request=_request(address, text, ca, client_certificate, client_key), **more)

    return reduce(lambda inner, option: option(inner), reversed(_OPTIONS), cast("Function", wrapped))


def join(
    request: JoinRequest,
    path: Path,
    *,
    roles: Collection[Role],
    elsewhere: str,
    own_folder: bool = False,
    plan_key: str | None = None,
) -> Identity:
    """Trade the token for an identity of one of `roles` and write it to `path`, readable by its owner only.

    The token is good once, so the folder of `path` is checked first; `elsewhere` is the option that names another.
    With `own_folder`, the folder must belong to this user: the program that will read the identity runs as its owner.
    `plan_key` becomes part of the identity. Raises `JoinSettingsError`, and `EnrolmentError`.
    """
    # It loads gRPC, which a help and the other commands of the module do without.
    from isochrone_common import enrolment  # noqa: PLC0415
    from isochrone_common.enrolment import EnrolmentError  # noqa: PLC0415

    _check_folder(path.parent, elsewhere, own_folder=own_folder)
    joined = enrolment.join(
        request.address, request.token, version=__version__, authorities=request.authorities, client=request.client
    )
    joined = replace(joined, plan_key=plan_key)
    if joined.role not in roles:
        program = "isochrone-agent" if joined.role is Role.VANTAGE else "isochrone"
        raise EnrolmentError(
            f"the token was for role {joined.role.value} and is used up now",
            hint=f"with such a token run `{program} join`; an operator makes another one",
        )
    try:
        identity_file.write(path, joined)
    except OSError as error:
        hint = "make the folder writable, then join with another token"
        raise EnrolmentError(f"cannot write {path}: {error.strerror}; the token is used up now", hint=hint) from error
    return joined


def _request(
    address: str, token: str | None, ca: str | None, certificate: Path | None, key: Path | None
) -> JoinRequest:
    if not token:
        raise JoinSettingsError("a join token is needed", hint=_NO_TOKEN_HINT)
    try:
        parse_join_token(token)
    except ValueError as error:
        raise JoinSettingsError(str(error), hint="copy the complete token and nothing else") from None
    try:
        return JoinRequest(
            address=parse_address(address),
            token=token,
            authorities=read_authorities(ca) if ca else None,
            client=client_certificate(certificate, key),
        )
    except ValueError as error:
        raise JoinSettingsError(str(error), hint="for example: join collector.example:4600 --token …") from error


def _check_folder(folder: Path, elsewhere: str, *, own_folder: bool) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        hint = f"name another with {elsewhere}"
        raise JoinSettingsError(f"{folder} cannot be made: {error.strerror}", hint=hint) from error
    if own_folder and (owner := folder.stat().st_uid) != os.geteuid():
        # Programs run as the owner, who cannot read what another user writes there.
        raise JoinSettingsError(
            f"{folder} belongs to another user (uid {owner})", hint=f"join as that user (sudo -u USER), or {elsewhere}"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise JoinSettingsError(f"cannot write to {folder}", hint=f"make it writable, or {elsewhere}")
