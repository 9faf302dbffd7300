"""Errors of the simulator.

SimError
├── SettingsError     act: the user corrects the option
├── WorldError        act: the author corrects the world file; the message lists every problem
└── ListenError       act: the operator frees the port or chooses another one

RequestRefused        not a failure: the provider answers this request with an error response
"""

from isochrone_sim.requests import ErrorResponse
from isochrone_wire.errors import IsochroneError


class SimError(IsochroneError):
    """Base class of the simulator's errors."""


class SettingsError(SimError):
    """An option or an environment variable is invalid."""

    exit_code = 2


class WorldError(SimError):
    """A world file cannot be read or is invalid."""

    exit_code = 2


class ListenError(SimError):
    """An address cannot be listened on."""


class RequestRefused(Exception):  # noqa: N818  # named after the event
    """A request that is answered with the error response `response`."""

    def __init__(self, response: ErrorResponse) -> None:
        super().__init__(response.message)
        self.response = response
