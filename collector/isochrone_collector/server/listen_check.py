"""Check of the addresses to listen on, before anything starts.

PostgreSQL would take seconds to start and to stop in vain, and gRPC writes its own line to stderr if it cannot
bind. It replaces a Unix socket even while another collector listens on it.
"""

import errno
import os
import socket
from pathlib import Path

from isochrone_collector.errors import StartError
from isochrone_common.address import MAX_SOCKET_PATH_BYTES, UNIX, Address

_HINTS = {
    errno.EADDRINUSE: "another collector may be running: stop it, or choose another --listen",
    errno.EACCES: "only root may listen on a port below 1024; choose another --listen",
}
_OTHER_HINT = "choose another --listen"


def check_listen(listen: Address) -> None:
    """Raises `StartError` if the address cannot be listened on now. Port 0 is always free."""
    from isochrone_collector.acceptor import bound  # noqa: PLC0415  # `serve --help` needs neither asyncio nor TLS

    try:
        for listener in bound(listen):
            listener.close()
    except socket.gaierror as error:
        raise StartError(f"cannot listen on {listen}: {error.strerror}", hint=_OTHER_HINT) from error
    except OSError as error:
        reason, hint = os.strerror(error.errno or 0).lower(), _HINTS.get(error.errno or 0, _OTHER_HINT)
        raise StartError(f"cannot listen on {listen}: {reason}", hint=hint) from error


def check_unix_socket(address: Address) -> None:
    """Raises `StartError` if the Unix socket cannot be made now; one that a killed collector left is replaced."""
    if problem := _problem_of_socket(Path(address.host.removeprefix(UNIX))):
        raise StartError(f"cannot listen on {address}: {problem}", hint="choose another --unix-socket, or off")


def _problem_of_socket(path: Path) -> str:
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        return f"its path has more than {MAX_SOCKET_PATH_BYTES} bytes"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return "its folder does not exist or cannot be written to"
    if not os.path.lexists(path):
        return ""
    if not path.is_socket():
        return "there is another file"
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(1.0)
        # Any other error may be that of a busy process.
        return "" if trial.connect_ex(str(path)) == errno.ECONNREFUSED else "another process listens on it"
