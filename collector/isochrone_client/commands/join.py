"""`isochrone join`: a join token for access to a collector."""

from pathlib import Path
from typing import IO

import click

from isochrone_client.address import DEFAULT_COLLECTOR, default_identity_path
from isochrone_client.commands import options
from isochrone_client.errors import AccessError, AddressError, UnreachableError
from isochrone_wire import __version__, enrolment, identity_file
from isochrone_wire.address import Address, parse_address
from isochrone_wire.channel import ClientCertificate, Trust, client_certificate, read_authorities
from isochrone_wire.enrolment import EnrolmentError
from isochrone_wire.identity_file import Identity
from isochrone_wire.operations import Role

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("join", epilog=options.example("isochrone join collector.example:4600 --token isochrone-join-…"))
@click.argument("address", metavar="ADDRESS")
@click.option("--token", envvar="ISOCHRONE_JOIN_TOKEN", metavar="TOKEN", help="The token; ps shows it to others.")
@click.option("--token-file", type=click.File(), metavar="FILE", help="A file with nothing but the token; - is stdin.")
@click.option(
    "--identity",
    envvar="ISOCHRONE_IDENTITY",
    type=_FILE,
    metavar="FILE",
    help="Where to write who you are.  [default: ~/.config/isochrone/identity.json]",
)
@click.option(
    "--ca",
    metavar="FILE",
    help="Know the collector by these authorities (PEM) from now on, or by the system's: `system`.  "
    "[default: by the certificate it has now]",
)
@click.option(
    "--client-certificate",
    "certificate",
    type=_FILE,
    metavar="FILE",
    help="Shown to a collector that asks for it (mTLS).",
)
@click.option("--client-key", "key", type=_FILE, metavar="FILE", help="Its key.")
def join(
    *,
    address: str,
    token: str | None,
    token_file: IO[str] | None,
    identity: Path | None,
    ca: str | None,
    certificate: Path | None,
    key: Path | None,
) -> None:
    """Trade a join token for access to a collector.

    The collector's certificate is compared with the fingerprint in the token before anything is said. Who you are is
    written to a file that only you can read, and every other command finds it there. Joining again replaces it.
    """
    file = identity or default_identity_path()
    where, trusted, client = _told(address, ca, certificate, key)
    text = _token(token, token_file)
    _prepare(file)
    try:
        joined = enrolment.join(where, text, version=__version__, authorities=trusted, client=client)
    except EnrolmentError as error:
        kind = UnreachableError if error.unreachable else AccessError
        raise kind(str(error), hint=error.hint) from error
    _keep(file, joined)


def _told(
    address: str, ca: str | None, certificate: Path | None, key: Path | None
) -> tuple[Address, Trust | None, ClientCertificate | None]:
    try:
        return parse_address(address), read_authorities(ca) if ca else None, client_certificate(certificate, key)
    except ValueError as error:
        raise AddressError(str(error), hint=f"for example isochrone join {DEFAULT_COLLECTOR} --token …") from error


def _token(token: str | None, file: IO[str] | None) -> str:
    text = file.read() if file else token
    if not text:
        raise click.UsageError("say --token, --token-file (- is stdin) or ISOCHRONE_JOIN_TOKEN")
    return text


def _prepare(file: Path) -> None:
    """The token is good once, so what can go wrong here goes wrong before it is used."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise AddressError(f"{file.parent} cannot be made: {error.strerror}", hint="say --identity FILE") from error


def _keep(file: Path, joined: Identity) -> None:
    if joined.role is Role.VANTAGE:
        raise AccessError("the token was a vantage's, and is used up", hint="isochrone-agent joins as a vantage")
    replaced = " (replaced)" if file.exists() else ""
    try:
        identity_file.write(file, joined)
    except OSError as error:
        raise AddressError(f"{file} cannot be written: {error.strerror}; the token is used up") from error
    click.echo(f"joined {joined.address} as {joined.name}, {joined.role.value}")
    click.echo(f"identity: {file}{replaced}")
