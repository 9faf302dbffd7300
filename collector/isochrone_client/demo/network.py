"""The network between the regions of the demo and the simulated providers: real round trips where this machine allows
network namespaces.

The providers run in a namespace of their own, and each agent in that of its region, one round trip away. The collector
stays in the network of this machine, and agents in namespaces reach it through a Unix socket.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isochrone_client.demo.processes import Processes
from isochrone_client.demo.scenario import ROUND_TRIPS_MS
from isochrone_client.errors import DemoError
from isochrone_common.address import MAX_SOCKET_PATH_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The address of the providers, and the words to put before a command that runs beside them or in a region.

    Without a network, everything runs on the loopback of this machine, for the reason in `absence`.
    """

    absence: str = ""
    address: str = "127.0.0.1"
    providers: Sequence[str] = ()
    regions: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.absence:
            return f"the distance of the regions is simulated in the providers only: {self.absence}"
        return "round trips to the providers: " + ", ".join(f"{ms} ms from {at}" for at, ms in ROUND_TRIPS_MS.items())

    @property
    def options(self) -> Iterator[str]:
        """The options by which the simulator takes the network's share from its own times; none without a network."""
        if not self.absence:
            yield "--allow-remote"
            for region, round_trip_ms in ROUND_TRIPS_MS.items():
                yield from ("--round-trip", region, str(round_trip_ms))


def collector_socket(root: Path) -> Path | None:
    """The path of the collector's Unix socket in the folder of the demo; `None` if it is too long for a socket."""
    path = root / "collector.sock"
    return path if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES else None


def start_network(processes: Processes, root: Path) -> Network:
    """Start the network; one without namespaces if that is not possible."""
    if collector_socket(root) is None:
        return Network(absence=f"the path of {root} is too long for a Unix socket")
    round_trips = [f"{region}={ms}" for region, ms in ROUND_TRIPS_MS.items()]
    try:
        # A program of one thread: others may not enter a user namespace.
        ready = processes.start_ready("network", "isochrone_sim.network", *round_trips, ends_with_input=True)
    except DemoError as error:
        return Network(absence=str(error).splitlines()[-1])
    return Network(address=ready["address"], providers=ready["hub"], regions=ready["regions"])
