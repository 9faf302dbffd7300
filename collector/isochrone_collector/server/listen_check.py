"""Check of the address to listen on, before anything starts.

PostgreSQL would take seconds to start and to stop in vain, and gRPC writes a line of its own to stderr if it cannot
bind.
"""

import errno
import os
import socket
from typing import Any

from isochrone_collector.errors import StartError
from isochrone_wire.address import Address

_HINTS = {
    errno.EADDRINUSE: "another collector may be running: stop it, or choose another --listen",
    errno.EACCES: "only root may listen on a port below 1024; choose another --listen",
}
_OTHER_HINT = "choose another --listen"


def check_listen(listen: Address) -> None:
    """Raises `StartError` if the address cannot be listened on now. Port 0 is always free."""
    try:
        places = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise StartError(f"cannot listen on {listen}: {error.strerror}", hint=_OTHER_HINT) from error
    problems = [problem for problem in map(_problem, places) if problem]
    # A name may have an address that this machine does not have, as long as it has another one.
    serious = [problem for problem in problems if problem in _HINTS] or problems[len(places) - 1 :]
    if serious:
        reason, hint = os.strerror(serious[0]).lower(), _HINTS.get(serious[0], _OTHER_HINT)
        raise StartError(f"cannot listen on {listen}: {reason}", hint=hint)


def _problem(place: tuple[Any, ...]) -> int | None:
    """Return the error number of binding to a resolved address, or `None`."""
    family, kind, protocol, _, address = place
    try:
        with socket.socket(family, kind, protocol) as trial:
            # As gRPC does: a port whose last connections are still closing is free.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        return error.errno
    return None
