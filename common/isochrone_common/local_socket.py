"""The collector that a command calls, and its Unix socket, where commands and agents of its user need no credential."""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from isochrone_common.address import DEFAULT_HTTP_PORT, DEFAULT_PORT, UNIX, Address
from isochrone_common.files import expand_home
from isochrone_common.identity_file import Identity
from isochrone_common.trust import speaks_tls

FILE_NAME = "collector.sock"
_HTTP = ".http"
_ANSWERS_WITHIN_S = 1.0


def data_dir_of(environment: Mapping[str, str]) -> Path:
    """Return the collector's data folder that an environment sets, or the default."""
    folder = environment.get("ISOCHRONE_DATA_DIR")
    return Path(folder) if folder else default_data_dir(environment)


def default_data_dir(environment: Mapping[str, str]) -> Path:
    """Return the collector's data folder if no option sets it."""
    return expand_home(environment.get("XDG_DATA_HOME") or "~/.local/share") / "isochrone" / "collector"


def select_collector(
    address: Address | None,
    *,
    named: Identity | None,
    default: Identity | None,
    http: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Address, Identity | None]:
    """Return the address of the collector to use, for gRPC or for `http`, and the identity to use there.

    `address` is the address on the command line, `named` the identity file given there, and `default` the identity in
    the default place. A `named` identity applies to every address, for example through a tunnel; the `default` identity
    applies to its own addresses only. With none of them the address is the Unix socket of this user's collector, else
    the default port on loopback, in plain text.
    """
    identity = named or (default if default is not None and _is_of(default, address) else None)
    if identity is not None and _is_of(identity, address):
        return (identity.http_address if http else identity.address), identity
    if address is None:
        port = DEFAULT_HTTP_PORT if http else DEFAULT_PORT
        address = _listening(environment, http=http) or Address("127.0.0.1", port)
    elif address.is_socket and http:
        address = Address(f"{UNIX}{http_socket(Path(address.host.removeprefix(UNIX)))}", 0)
    return address, identity


def _is_of(identity: Identity, address: Address | None) -> bool:
    return address in (None, identity.address, identity.http_address)


def default_socket(environment: Mapping[str, str]) -> Address:
    """Return the socket of this user's collector, and the place where it is by default if none listens yet."""
    default = _given(environment) or default_data_dir(environment).absolute() / FILE_NAME
    return _listening(environment) or Address(f"{UNIX}{default}", 0)


def http_socket(path: Path) -> Path:
    """Return the Unix socket for HTTP beside the one at `path`: `collector.http.sock` beside `collector.sock`."""
    return path if path.stem.endswith(_HTTP) else path.with_name(f"{path.stem}{_HTTP}{path.suffix}")


def is_listening(path: Path) -> bool:
    """Return whether a process listens on a Unix socket that this user may connect to."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(_ANSWERS_WITHIN_S)
        try:
            trial.connect(str(path))
        except OSError:
            return False
        return True


def plain_text_refusal(address: Address) -> tuple[str, str] | None:
    """Return why a call in plain text to loopback failed, and a hint, if the collector there requires TLS."""
    if address.is_socket or not address.is_loopback or not speaks_tls(address):
        return None
    return f"the collector at {address} requires TLS and a credential", REFUSED_HINT


REFUSED_HINT = (
    "as the collector's user, omit --collector or use --collector unix:PATH (collector.sock in its data folder); as "
    "another user, join it; or start it with --trust-loopback"
)


def _listening(environment: Mapping[str, str], *, http: bool = False) -> Address | None:
    paths = (http_socket(path) if http else path for path in _paths(environment))
    return next((Address(f"{UNIX}{path}", 0) for path in paths if is_listening(path)), None)


def _given(environment: Mapping[str, str]) -> Path | None:
    path = environment.get("ISOCHRONE_UNIX_SOCKET")
    return Path(path) if path and path != "off" else None


def _paths(environment: Mapping[str, str]) -> Iterator[Path]:
    if given := _given(environment):
        yield given
    # An agent's own folder has the same variable.
    for folder in dict.fromkeys((data_dir_of(environment), default_data_dir(environment))):
        yield folder.absolute() / FILE_NAME
