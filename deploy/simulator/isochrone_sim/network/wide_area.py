"""The namespaces of a hub and its regions, and the links between them.

The hub has the address 10.77.0.1, which every region reaches over its own link. The namespaces have no names: they
exist as long as a process is in them or this process has them open, so that nothing can be left behind.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from isochrone_sim.network import kernel
from isochrone_sim.network.delay_line import Link

HUB_ADDRESS = "10.77.0.1"
_ONE_HOST = "255.255.255.255"
_ONE_LINK = "255.255.255.0"
_EVERY_LINK = "255.255.0.0"
_OWN_NETWORK = "/proc/self/ns/net"
_OWN_USER = "/proc/self/ns/user"


@dataclass(frozen=True, slots=True, kw_only=True)
class WideArea:
    """The hub and the regions as the paths of the namespaces to enter, in that order; and the links by region."""

    hub: tuple[str, ...]
    regions: Mapping[str, tuple[str, ...]]
    links: Mapping[str, Link]


def create_wide_area(round_trips_us: Mapping[str, int]) -> WideArea:
    """Create the namespaces, one per region with its round trip to the hub in microseconds, and their devices.

    This process stays in one of them. Raises `OSError`.
    """
    before = Path(_OWN_USER).readlink()
    kernel.enter_new_network()
    users = () if Path(_OWN_USER).readlink() == before else (_OWN_USER,)
    hub = kernel.open_namespace(_OWN_NETWORK)
    kernel.set_up("lo")
    kernel.set_address("lo:hub", HUB_ADDRESS, _ONE_HOST)
    regions, links = {}, {}
    for number, (region, round_trip_us) in enumerate(round_trips_us.items(), 1):
        kernel.enter_namespace(hub)
        near = _device(f"region-{number}", f"10.77.{number}.1", _ONE_LINK)
        kernel.enter_new_network()
        kernel.set_up("lo")
        far = _device("hub", f"10.77.{number}.2", _EVERY_LINK)
        regions[region] = _paths(*users, kernel.open_namespace(_OWN_NETWORK))
        links[region] = Link(ends=(near, far), delay_ns=round_trip_us * 500)
    return WideArea(hub=_paths(*users, hub), regions=regions, links=links)


def _device(name: str, address: str, mask: str) -> int:
    descriptor = kernel.create_device(name)
    kernel.set_address(name, address, mask)
    kernel.set_up(name)
    return descriptor


def _paths(*spaces: str | int) -> tuple[str, ...]:
    """Return the paths by which other processes reach these namespaces of this process."""
    own = f"/proc/{os.getpid()}"
    return tuple(f"{own}/fd/{one}" if isinstance(one, int) else one.replace("/proc/self", own) for one in spaces)
