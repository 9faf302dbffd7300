"""What can go wrong in the simulator.

SimError
├── SettingsError     the person who wrote the flag must correct it
├── WorldError        the author of the world file must correct it; names every problem at once
└── ListenError       the operator must free the port or name another

RequestRefused        not ours: the client asked for something that the provider answers with an error
"""

from isochrone_sim.exchange.refusal import Refusal
from isochrone_wire.errors import IsochroneError


class SimError(IsochroneError):
    """Root of the tree."""


class SettingsError(SimError):
    """A flag or an environment variable is wrong."""

    exit_code = 2


class WorldError(SimError):
    """A world file cannot be read or describes no possible world."""

    exit_code = 2


class ListenError(SimError):
    """An address cannot be listened on."""


class RequestRefused(Exception):  # noqa: N818  # reads as what happened
    """A request that is answered with the error `refusal`."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
