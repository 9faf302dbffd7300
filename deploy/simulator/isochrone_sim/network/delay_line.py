"""A delay line in user space: packets between two TUN devices arrive a fixed time after they were sent.

It takes the place of netem, which needs a kernel module. The two devices of a link are in different namespaces; packets
read from one are delayed and written to the other, in order.
"""

import heapq
import os
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

_MTU_BYTES = 65_536
_IDLE_NS = 1_000_000_000


@dataclass(slots=True, kw_only=True)
class Link:
    """Two devices as file descriptors, the one-way delay, and whether packets pass."""

    ends: tuple[int, int]
    delay_ns: int
    connected: bool = True

    def other(self, end: int) -> int:
        """Return the other end."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]


@dataclass(slots=True)
class DelayLine:
    """All links by name, and the packets in flight as (due instant, sequence number, device, packet)."""

    links: Mapping[str, Link]
    in_flight: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    seen: int = 0

    def run(self) -> None:
        """Carry packets, and follow the commands of the standard input until it ends; a cut link drops all packets."""
        of = {end: link for link in self.links.values() for end in link.ends}
        commands = sys.stdin.fileno()
        while True:
            # Until the next packet is due.
            due_ns = self.in_flight[0][0] - time.monotonic_ns() if self.in_flight else _IDLE_NS
            ready, _, _ = select.select([commands, *of], [], [], max(0, due_ns) / 1e9)
            now_ns = time.monotonic_ns()
            for end in of.keys() & ready:
                self._receive(of[end], end, now_ns)
            if commands in ready and not self._follow(sys.stdin.readline()):
                return
            while self.in_flight and self.in_flight[0][0] <= time.monotonic_ns():
                _, _, end, packet = heapq.heappop(self.in_flight)
                # Writing to a device that is not up yet fails.
                with suppress(OSError):
                    os.write(end, packet)

    def _receive(self, link: Link, end: int, now_ns: int) -> None:
        with suppress(BlockingIOError):
            while packet := os.read(end, _MTU_BYTES):
                self.seen += 1
                if link.connected:
                    heapq.heappush(self.in_flight, (now_ns + link.delay_ns, self.seen, link.other(end), packet))

    def _follow(self, command: str) -> bool:
        """Follow one command; return false at the end of the input."""
        words = command.split()
        if not words:
            return False
        self.links[words[1]].connected = words[0] == "mend"
        print(command.strip(), flush=True)  # noqa: T201  # the reply
        return True
