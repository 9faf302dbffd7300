"""Errors between a reader and the collector, with the exit code of the command and the person who must act.

    ClientError                1  base: a sentence, perhaps a hint
    ├── UsageError             2  the reader: something that was written is wrong
    │   ├── WindowError           ... the time range cannot be read
    │   ├── AddressError          ... the collector's address is malformed, or has to be joined first
    │   ├── RefusedError          ... a value of the request is not valid
    │   │   ├── UnknownNameError  ... the collector does not know a target, region, route or use
    │   │   └── NoTableError      ... it has no route table yet
    │   ├── AmbiguousError        ... a short name has several meanings
    │   ├── BaselineError         ... no region to compare with was named, and the plan has none
    │   ├── ConfigurationError    ... the configuration file or a context's name is wrong
    │   └── FieldError            ... --fields names a field that the answer does not have
    ├── AccessError            1  the reader: access is refused, or the collector is not the one that was joined
    ├── UnreachableError       3  the operator of the collector: nothing answers at the address
    ├── InsufficientError      4  time, or the operators of the agents: too few data for an answer
    │   └── NoSamplesError        ... none of a region, because nothing runs there
    ├── StaticOrderError       4  the operator of the collector: an exported file has no table, only the static order
    ├── SlowError              1  the reader: ask for less, or wait longer
    ├── ClusterError           1  the operator of the Kubernetes cluster: its API server is away, or refuses a call
    ├── FileError              1  the reader: the file to write exists, or cannot be written
    ├── MissingExtraError      1  the reader: an extra has to be installed
    ├── DemoError              1  the user of the demo: a part of it did not start, or its folder is in use
    └── CollectorError         1  the operator of the collector: it failed, or has another version

An `InsufficientError` is raised after the answer has been printed: a note with exit code 0, or 4 with --exit-code.
"""

from isochrone_wire.answers import Absence, Window
from isochrone_wire.errors import IsochroneError


class ClientError(IsochroneError):
    """Root of the tree."""


class UsageError(ClientError):
    """Something that the reader wrote is wrong."""

    exit_code = 2


class WindowError(UsageError):
    """A time range that cannot be read."""


class AddressError(UsageError):
    """A collector address that is malformed, or that has to be joined first."""


class AccessError(ClientError):
    """Access is refused, or the collector is not the one that was joined."""


class RefusedError(UsageError):
    """The collector refuses the request: a value is not valid, or a name is unknown."""


class UnknownNameError(RefusedError):
    """The collector does not know a name in the request."""


class NoTableError(RefusedError):
    """The collector has no route table yet: it lacks samples, or a plan with routes."""


class AmbiguousError(UsageError):
    """A short name that fits several regions or targets."""


class BaselineError(UsageError):
    """The region to compare with is missing."""


class ConfigurationError(UsageError):
    """The configuration file, or the name of a context, is wrong."""


class FieldError(UsageError):
    """A field that the answer does not have."""


class UnreachableError(ClientError):
    """Nothing answers at the collector's address."""

    exit_code = 3


class InsufficientError(ClientError):
    """The data are too few for an answer, or the answer is undecided."""

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
    """An exported file has the static order of a route, because no table may be used."""

    exit_code = 4


class SlowError(ClientError):
    """The collector did not answer in time."""


class FileError(ClientError):
    """A file to write exists, or cannot be written."""


class ClusterError(ClientError):
    """The API server of a Kubernetes cluster does not answer, or refuses a call."""


class MissingExtraError(ClientError):
    """A package that the command needs is not installed."""


class CollectorError(ClientError):
    """The collector failed, or has a version that this client does not know."""


class DemoError(ClientError):
    """A part of the demo did not start or ended early. The message ends with its log."""
