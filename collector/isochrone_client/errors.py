"""Errors between a reader and the collector, with the exit code of the command and the person who must act.

An `InsufficientError` is raised after the answer has been printed: a note with exit code 0, or 4 with --exit-code.
"""

from isochrone_wire.answers import Absence, Window
from isochrone_wire.errors import IsochroneError


class ClientError(IsochroneError):
    """Root of the tree; the exit code is 1 unless a class has another one."""


class UsageError(ClientError):
    """Something that the reader wrote is wrong. The reader acts, also on the errors derived from this one."""

    exit_code = 2


class AddressError(UsageError):
    """A collector address that is malformed, or that has to be joined first."""


class AccessError(ClientError):
    """Access is refused, or the collector is not the one that was joined. The reader acts."""


class RefusedError(UsageError):
    """The collector refuses the request: a value is not valid, or a name is unknown."""


class UnknownNameError(RefusedError):
    """The collector does not know a name in the request."""


class NoTableError(RefusedError):
    """The collector has no route table yet: it lacks samples, or a plan with routes."""


class BaselineError(UsageError):
    """The region to compare with is missing."""


class ConfigurationError(UsageError):
    """The configuration file, or the name of a context, is wrong."""


class UnreachableError(ClientError):
    """Nothing answers at the collector's address. Its operator acts."""

    exit_code = 3


class InsufficientError(ClientError):
    """The data are too few for an answer, or the answer is undecided: time helps, or the operators of the agents."""

    exit_code = 4


class NoSamplesError(InsufficientError):
    """There are no samples in a window, or none from a region other than `besides`.

    `missing` are the reasons, if the answer has them; `isochrone_client.absence` adds them otherwise.
    """

    def __init__(
        self,
        message: str,
        *,
        window: Window,
        besides: str = "",
        missing: tuple[Absence, ...] = (),
        hint: str = "see `isochrone coverage`; a longer --window may include older samples",
    ) -> None:
        super().__init__(message, hint=hint)
        self.window = window
        self.besides = besides
        self.missing = missing


class StaticOrderError(ClientError):
    """An exported file has the static order of a route, because no table may be used. The collector's operator acts."""

    exit_code = 4


class SlowError(ClientError):
    """The collector did not answer in time. The reader asks for less, or waits longer."""


class FileError(ClientError):
    """A file to write exists, or cannot be written. The reader acts."""


class ClusterError(ClientError):
    """The API server of a Kubernetes cluster does not answer, or refuses a call. The cluster's operator acts."""


class MissingExtraError(ClientError):
    """A package that the command needs is not installed. The reader acts."""


class CollectorError(ClientError):
    """The collector failed, or has a version that this client does not know. Its operator acts."""


class DemoError(ClientError):
    """A part of the demo did not start or ended early. The message ends with its log."""
