"""A name server for one name, so that a lookup takes a real round trip.

python nameserver.py ADDRESS NAME      answers A queries for NAME with ADDRESS, and all others with "no such name"

It listens on UDP port 53 of ADDRESS, prints a line when ready, and runs until it is killed.
"""

import socket
import struct
import sys

HEADER = struct.Struct(">HHHHHH")
ANSWER = struct.Struct(">HHIH")
TYPE_A, CLASS_IN, TTL_SECONDS = 1, 1, 0
NAME_POINTER = 0xC00C
FLAGS_FOUND, FLAGS_NO_SUCH_NAME = 0x8580, 0x8583


def question(query: bytes) -> tuple[str, int, int]:
    """Return the queried name, the type, and the position of the end of the question."""
    labels, at = [], HEADER.size
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    (kind,) = struct.unpack_from(">H", query, at + 1)
    return ".".join(labels), kind, at + 5


def reply(query: bytes, name: str, address: str) -> bytes:
    """Return the answer to a query. A known name without an address of the requested type gives an empty answer."""
    queried, kind, end = question(query)
    known = queried.lower() == name
    found = known and kind == TYPE_A
    flags = FLAGS_FOUND if known else FLAGS_NO_SUCH_NAME
    head = HEADER.pack(int.from_bytes(query[:2], "big"), flags, 1, int(found), 0, 0)
    record = struct.pack(">H", NAME_POINTER) + ANSWER.pack(TYPE_A, CLASS_IN, TTL_SECONDS, 4)
    return head + query[HEADER.size : end] + (record + socket.inet_aton(address) if found else b"")


def main() -> None:
    """Answer queries until killed."""
    address, name = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        print("ready", flush=True)  # noqa: T201  # the ready signal
        while True:
            query, client = server.recvfrom(512)
            server.sendto(reply(query, name, address), client)


if __name__ == "__main__":
    main()
