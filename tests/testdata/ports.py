"""Ports of this machine at which nothing listens.

They are below those that the system gives to connections and to servers that ask for any port: a connection of another
test may otherwise take a port before the server of this one listens there.
"""

import random
import socket
from contextlib import ExitStack, suppress

# The range of Linux begins at 32 768.
_PORTS = range(12_000, 32_000)


def free_ports(count: int) -> list[int]:
    ports: list[int] = []
    with ExitStack() as stack:
        while len(ports) < count:
            port = random.choice(_PORTS)
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
    return ports


def free_port() -> int:
    return free_ports(1)[0]


def dead_url() -> str:
    return f"http://127.0.0.1:{free_port()}/v1"
