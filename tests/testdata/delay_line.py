"""A delay line in user space: packets between two TUN devices arrive a fixed time after they were sent.

It replaces netem, which the test kernel lacks. Each link has a TUN device at either end, each in its own namespace;
packets read from one end are delayed and written to the other, in order. Run it as a separate process:

python delay_line.py '[{"ends": [["NS-A", "tun-a"], ["NS-B", "tun-b"]], "delay_us": 15000}]'

It prints a line when the devices exist. Each following line on its standard input is a command, `cut N` or `mend N`,
for link N, and is answered with a line; a cut link drops all packets. The process ends when its standard input is
closed.
"""

import ctypes
import fcntl
import heapq
import json
import os
import select
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
MTU_BYTES = 65_536
IDLE_SECONDS = 1.0
COMMANDS = 0  # the standard input


@dataclass(slots=True)
class Link:
    """Two devices as file descriptors, the one-way delay, and whether packets pass."""

    ends: tuple[int, int]
    delay_ns: int
    connected: bool = True

    def other(self, end: int) -> int:
        """Return the other end."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]


@dataclass(slots=True)
class Cable:
    """All links, and the packets in flight as (due instant, sequence number, device, packet)."""

    links: list[Link]
    in_flight: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    seen: int = 0

    def run(self) -> None:
        """Forward packets until the standard input ends."""
        of = {end: link for link in self.links for end in link.ends}
        while True:
            ready, _, _ = select.select([COMMANDS, *of], [], [], self.next_timeout())
            now_ns = time.monotonic_ns()
            for end in of.keys() & ready:
                self.receive(of[end], end, now_ns)
            if COMMANDS in ready and not self.handle_command(sys.stdin.readline()):
                return
            self.deliver()

    def next_timeout(self) -> float:
        """Return the seconds until the next packet is due."""
        if not self.in_flight:
            return IDLE_SECONDS
        return max(0.0, (self.in_flight[0][0] - time.monotonic_ns()) / 1e9)

    def receive(self, link: Link, end: int, now_ns: int) -> None:
        """Read all packets that wait at one end."""
        while packet := _read(end):
            self.seen += 1
            if link.connected:
                heapq.heappush(self.in_flight, (now_ns + link.delay_ns, self.seen, link.other(end), packet))

    def deliver(self) -> None:
        """Write the packets that are due."""
        while self.in_flight and self.in_flight[0][0] <= time.monotonic_ns():
            _, _, end, packet = heapq.heappop(self.in_flight)
            # Writing to a device that is not up yet fails.
            with suppress(OSError):
                os.write(end, packet)

    def handle_command(self, command: str) -> bool:
        """Handle one command; return false at the end of the input."""
        words = command.split()
        if not words:
            return False
        self.links[int(words[1])].connected = words[0] == "mend"
        print(command.strip(), flush=True)  # noqa: T201  # the reply
        return True


def _read(end: int) -> bytes:
    try:
        return os.read(end, MTU_BYTES)
    except BlockingIOError:
        return b""


def device(namespace: str, name: str) -> int:
    """Create a TUN device in a named network namespace and return its descriptor. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(place, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.close(place)
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN_NO_PI))
    return descriptor


def main() -> None:
    """Lay the cable and carry packets."""
    links = [
        Link(ends=(device(*spec["ends"][0]), device(*spec["ends"][1])), delay_ns=spec["delay_us"] * 1000)
        for spec in json.loads(sys.argv[1])
    ]
    print("ready", flush=True)  # noqa: T201  # the sign
    Cable(links).run()


if __name__ == "__main__":
    main()
