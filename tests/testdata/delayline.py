"""A long cable in user space: packets between two TUN devices arrive a set time after they were sent.

This kernel has no netem. Each link has a TUN device at either end, in namespaces of their own; whatever comes out of
one is held for the link's delay and put into the other, in order. Run as a process of its own:

    python delayline.py '[{"ends": [["NS-A", "tun-a"], ["NS-B", "tun-b"]], "delay_us": 15000}]'

It prints a line when the devices exist. Then each line on its standard input is an order, `cut N` or `mend N`, obeyed
for link N and answered with a line: a cut link drops everything. It ends with its standard input.
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
ORDERS = 0  # the standard input


@dataclass(slots=True)
class Link:
    """Two devices by file descriptor, the one-way delay, and whether packets pass."""

    ends: tuple[int, int]
    delay_ns: int
    whole: bool = True

    def other(self, end: int) -> int:
        """The far end of `end`."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]


@dataclass(slots=True)
class Cable:
    """All links, and the packets on their way as (due instant, order, device, packet)."""

    links: list[Link]
    under_way: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    seen: int = 0

    def run(self) -> None:
        """Carry packets until the standard input ends."""
        of = {end: link for link in self.links for end in link.ends}
        while True:
            ready, _, _ = select.select([ORDERS, *of], [], [], self.patience())
            now_ns = time.monotonic_ns()
            for end in of.keys() & ready:
                self.take(of[end], end, now_ns)
            if ORDERS in ready and not self.obey(sys.stdin.readline()):
                return
            self.deliver()

    def patience(self) -> float:
        """Seconds until the next packet is due."""
        if not self.under_way:
            return IDLE_SECONDS
        return max(0.0, (self.under_way[0][0] - time.monotonic_ns()) / 1e9)

    def take(self, link: Link, end: int, now_ns: int) -> None:
        """Everything that waits at one end."""
        while packet := _read(end):
            self.seen += 1
            if link.whole:
                heapq.heappush(self.under_way, (now_ns + link.delay_ns, self.seen, link.other(end), packet))

    def deliver(self) -> None:
        """Whatever is due."""
        while self.under_way and self.under_way[0][0] <= time.monotonic_ns():
            _, _, end, packet = heapq.heappop(self.under_way)
            # An end that is not up yet takes nothing.
            with suppress(OSError):
                os.write(end, packet)

    def obey(self, order: str) -> bool:
        """One order; False at the end of orders."""
        words = order.split()
        if not words:
            return False
        self.links[int(words[1])].whole = words[0] == "mend"
        print(order.strip(), flush=True)  # noqa: T201  # the answer
        return True


def _read(end: int) -> bytes:
    try:
        return os.read(end, MTU_BYTES)
    except BlockingIOError:
        return b""


def device(namespace: str, name: str) -> int:
    """Make a TUN device in a named network namespace and return its descriptor. Raises `OSError`."""
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
