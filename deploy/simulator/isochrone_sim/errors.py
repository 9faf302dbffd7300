from isochrone_sim.requests import ErrorResponse
from isochrone_wire.errors import IsochroneError


class SimError(IsochroneError):
    """Base class of the simulator's errors."""


class SettingsError(SimError):
    """An option or an environment variable is invalid. Action: the user, who corrects it."""

    exit_code = 2


class WorldError(SimError):
    """A world file cannot be read or is invalid. Action: its author, to whom the message lists every problem."""

    exit_code = 2


class ListenError(SimError):
    """An address cannot be listened on. Action: the operator, who frees the port or chooses another one."""


class RequestRefused(Exception):  # noqa: N818  # named after the event
    """A request that the provider answers with the error response `response`, which is no failure."""

    def __init__(self, response: ErrorResponse) -> None:
        super().__init__(response.message)
        self.response = response
