"""A plain client with blocking sockets: the reference for what an agent measures in the same network at the same time.

It connects again and again, each time with a lookup of the name, TCP and TLS of its own, and streams one answer. When
its standard input is closed, it prints its measurements as JSON, in microseconds with the names of a sample's fields.

python plain_client.py BASE_URL MODEL CA_FILE
"""

import json
import select
import socket
import ssl
import struct
import sys
import time
from itertools import pairwise
from urllib.parse import urlsplit

# The first chunk has only a role.
FIRST_TOKEN = b'{"content":"'
# The place of `tcpi_rtt` in the kernel's `struct tcp_info`.
RTT_OFFSET, TCP_INFO_BYTES = 68, 104


def measure(base_url: str, model: str, context: ssl.SSLContext) -> dict[str, int]:
    url = urlsplit(base_url)
    host, port = url.hostname or "", url.port or 443
    body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": "Hi"}]})
    head = f"POST {url.path}/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
    instants = [time.monotonic_ns()]
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    instants.append(time.monotonic_ns())
    with socket.socket(family, kind) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.connect(address)
        instants.append(time.monotonic_ns())
        with context.wrap_socket(plain, server_hostname=host) as connection:
            instants.append(time.monotonic_ns())
            connection.sendall((head + body).encode())
            received = b""
            while FIRST_TOKEN not in received:
                received += connection.recv(65_536)
            instants.append(time.monotonic_ns())
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    dns_us, tcp_us, tls_us, ttft_us = ((later - earlier) // 1000 for earlier, later in pairwise(instants))
    (rtt_us,) = struct.unpack_from("I", info, RTT_OFFSET)
    return {"dns_us": dns_us, "tcp_us": tcp_us, "tls_us": tls_us, "ttft_us": ttft_us, "rtt_us": rtt_us}


def main() -> None:
    base_url, model, ca_file = sys.argv[1:]
    context = ssl.create_default_context(cafile=ca_file)
    found = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        found.append(measure(base_url, model, context))
    print(json.dumps(found))  # noqa: T201  # the result


if __name__ == "__main__":
    main()
