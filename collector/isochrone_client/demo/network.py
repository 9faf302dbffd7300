"""The network between the regions of the demo and the simulated providers: real round trips where this machine allows
network namespaces.

The providers run in a namespace of their own, and each agent in that of its region, one round trip away. The collector
stays in the network of this machine, and agents in namespaces reach it through a Unix socket.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isochrone_client.demo.processes import Processes
from isochrone_client.demo.scenario import Vantage
from isochrone_client.errors import DemoError
from isochrone_common.address import MAX_SOCKET_PATH_BYTES

_SOCKET_FILE = "collector.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The address of the providers, and the words to put before a command that runs beside them or in a region.

    Without a network, everything runs on the loopback of this machine, for the reason in `absence`.
    """

    absence: str = ""
    address: str = "127.0.0.1"
    providers: Sequence[str] = ()
    regions: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def within(self, region: str) -> Sequence[str]:
        """The words to put before a command that runs in a region."""
        return self.regions.get(region, ())


def collector_socket(root: Path) -> Path | None:
    """The path of the collector's Unix socket in the folder of the demo; `None` if it is too long for a socket."""
    path = root / _SOCKET_FILE
    return path if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES else None


def start_network(processes: Processes, root: Path, vantages: Sequence[Vantage]) -> Network:
    """Start the network; one without namespaces if that is not possible."""
    if collector_socket(root) is None:
        return Network(absence=f"the path of {root} is too long for a Unix socket")
    round_trips = [f"{vantage.region}={vantage.round_trip_ms}" for vantage in vantages]
    try:
        # A program of one thread: others may not enter a user namespace.
        ready = processes.start_ready("network", "isochrone_sim.network", *round_trips, ends_with_input=True)
    except DemoError as error:
        return Network(absence=str(error).splitlines()[-1])
    return Network(address=ready["address"], providers=ready["hub"], regions=ready["regions"])


def simulator_options(network: Network, vantages: Sequence[Vantage]) -> tuple[str, ...]:
    """The options by which the simulator takes the network's share from its own times; none without a network."""
    if network.absence:
        return ()
    pairs = [("--round-trip", vantage.region, str(vantage.round_trip_ms)) for vantage in vantages]
    return ("--allow-remote", *(word for pair in pairs for word in pair))


def describe(network: Network, vantages: Sequence[Vantage]) -> str:
    """One line about the distance of the regions."""
    if network.absence:
        return f"the distance of the regions is simulated in the providers only: {network.absence}"
    return "round trips to the providers: " + ", ".join(f"{one.round_trip_ms} ms from {one.region}" for one in vantages)
