"""`isochrone-agent join`: a join token for an identity."""

import os
from pathlib import Path
from typing import IO

import click

from isochrone_agent.cli import options
from isochrone_agent.errors import CollectorUnreachable, JoinFailed, SettingsError
from isochrone_agent.settings import default_data_dir
from isochrone_wire import __version__, enrolment, identity_file
from isochrone_wire.address import Address, parse_address
from isochrone_wire.channel import ClientCertificate, Trust, client_certificate, read_authorities
from isochrone_wire.enrolment import EnrolmentError
from isochrone_wire.identity_file import Identity
from isochrone_wire.operations import Role

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("join")
@click.argument("address", metavar="ADDRESS")
@click.option("--token", envvar="ISOCHRONE_JOIN_TOKEN", metavar="TOKEN", help="The token; ps shows it to others.")
@click.option("--token-file", type=click.File(), metavar="FILE", help="A file with nothing but the token; - is stdin.")
@options.data_dir
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
def command(
    *,
    address: str,
    token: str | None,
    token_file: IO[str] | None,
    data_dir: str | None,
    ca: str | None,
    certificate: Path | None,
    key: Path | None,
) -> None:
    """Trade a one-time token for this machine's identity as a vantage of the collector at ADDRESS.

    The collector's certificate is compared with the fingerprint in the token before anything is said. The identity is
    kept in the data folder, readable by its owner only; `run` finds it there. Joining again replaces it, and an agent
    that runs takes the new one up.

    \b
    Example:
      isochrone-agent join collector.example:4600 --token isochrone-join-…
    """
    folder = Path(data_dir) if data_dir else default_data_dir(None)
    # What can be wrong here is looked at first, for the token is good once.
    where, trusted, client = _told(address, ca, certificate, key)
    text, earlier = _token(token, token_file), _prepared(folder)
    try:
        joined = enrolment.join(where, text, version=__version__, authorities=trusted, client=client)
    except EnrolmentError as error:
        kind = CollectorUnreachable if error.unreachable else JoinFailed
        raise kind(str(error), hint=error.hint) from error
    if joined.role is not Role.VANTAGE:
        raise JoinFailed(f"the token was a {joined.role.value}'s, and is used up", hint="vantage add makes an agent's")
    _keep(folder / identity_file.FILE_NAME, joined)
    _tell(folder, joined, earlier)


def _told(
    address: str, ca: str | None, certificate: Path | None, key: Path | None
) -> tuple[Address, Trust | None, ClientCertificate | None]:
    try:
        return parse_address(address), read_authorities(ca) if ca else None, client_certificate(certificate, key)
    except ValueError as error:
        raise SettingsError(str(error), hint="isochrone-agent join collector.example:4600 --token …") from error


def _token(token: str | None, file: IO[str] | None) -> str:
    text = file.read() if file else token
    if not text:
        hint = "say --token, --token-file (- is stdin) or ISOCHRONE_JOIN_TOKEN; vantage add makes a token"
        raise SettingsError("a join token is needed", hint=hint)
    return text


def _prepared(folder: Path) -> Identity | None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(f"{folder} cannot be made: {error.strerror}", hint="choose another --data-dir") from error
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        # The agent runs as the owner, and could not read what another user leaves there.
        hint = "join as the user the agent runs as: sudo -u USER isochrone-agent join …"
        raise SettingsError(f"{folder} belongs to another user (uid {owner})", hint=hint)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"{folder} cannot be written", hint="join as the user the agent runs as, or say --data-dir")
    try:
        return identity_file.read(folder / identity_file.FILE_NAME)
    except (OSError, ValueError):
        return None


def _keep(path: Path, joined: Identity) -> None:
    try:
        identity_file.write(path, joined)
    except OSError as error:
        hint = "ask for another token (vantage rotate), once the folder can be written"
        raise JoinFailed(f"{path} cannot be written: {error.strerror}; the token is used up", hint=hint) from error


def _tell(folder: Path, joined: Identity, earlier: Identity | None) -> None:
    click.echo(f"joined {joined.address} as vantage {joined.name} in {joined.region}")
    click.echo(f"identity: {folder / identity_file.FILE_NAME}" + (" (replaced)" if earlier else ""))
    if earlier is not None and earlier.name != joined.name:
        click.echo(f"note: this was vantage {earlier.name}; what waits in the spool will be delivered as {joined.name}")
    told = "" if folder == default_data_dir(None) else f" --data-dir {folder}"
    click.echo(f"next: isochrone-agent run{told}")
