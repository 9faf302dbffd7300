"""What can go wrong in the collector, and who must act.

    CollectorError
    ├── SettingsError            the operator: a flag, a variable or a file says something impossible (exit 2)
    ├── StartError               the operator: the collector cannot start here (exit 1)
    │   ├── EmbeddedError        ... the embedded PostgreSQL is missing, in use, or does not start
    │   ├── DatabaseUnreachable  ... no PostgreSQL answers at the address given
    │   └── SchemaError          ... the database was migrated by a newer collector, or not at all
    ├── RequestError             whoever asked
    │   ├── BadRequest           ... must ask differently; the same request never succeeds
    │   ├── UnknownName          ... named a target, region or metric that is not there
    │   ├── Conflict             ... must first settle what it claims, e.g. a vantage that changed its region
    │   ├── NotAdmitted          ... must say who it is, with a credential or a join token that is good
    │   ├── Forbidden            ... may not do this as who it is
    │   ├── TooMany              ... must wait a moment: more asked at once than is taken
    │   └── TookTooLong          ... must ask for less: the database was not done in the time a question may take
    ├── CollectorUnreachable     the operator: no collector answers where a command looked for it (exit 3)
    └── DatabaseUnavailable      nobody: try again, the database is away or asked for a retry
        └── PartitionMissing     ... a partition went or never came; try again, and the samples are set aside

A plan document with problems is not an error but an answer: see `planfile`. A sample that cannot be taken is a
`Rejection` in the receipt.
"""

from collections.abc import Collection
from typing import Self

from isochrone_collector import names
from isochrone_wire.errors import IsochroneError
from isochrone_wire.text import nearest


class CollectorError(IsochroneError):
    """Root of the tree."""


class SettingsError(CollectorError):
    """A setting is impossible. Act: the operator, in the flags, the environment or the file."""

    exit_code = 2


class StartError(CollectorError):
    """The collector cannot start. Act: the operator, on this machine."""


class EmbeddedError(StartError):
    """The embedded PostgreSQL is missing, in use or does not start. Act: the operator."""


class DatabaseUnreachable(StartError):  # noqa: N818  # a state, and the name the operator's message uses
    """No PostgreSQL answers. Act: the operator, on the address or on the server."""


class SchemaError(StartError):
    """The database's revision is not one this collector knows. Act: the operator, by upgrading the collector."""


class RequestError(CollectorError):
    """A request that is refused. Act: whoever sent it."""


class BadRequest(RequestError):  # noqa: N818  # named for the answer, as HTTP and gRPC do
    """The request can never succeed as it is. Act: whoever asked, by asking differently."""


class UnknownName(RequestError):  # noqa: N818  # named for what is wrong
    """A target, region or route that is not there. Act: whoever asked; the message lists what is.

    `known` are all names there are, sorted, and `nearest` the one that was perhaps meant.
    """

    def __init__(self, message: str, *, known: Collection[str] = (), nearest: str | None = None) -> None:
        super().__init__(message)
        self.known = sorted(known)
        self.nearest = nearest

    @classmethod
    def among(cls, kind: str, name: str, known: Collection[str]) -> Self:
        """The error of a `name` of some kind that is none of those known."""
        return cls(names.unknown(kind, name, known), known=known, nearest=nearest(name, known))


class Conflict(RequestError):  # noqa: N818  # named for the state
    """The request contradicts what is recorded. Act: the operator of the vantage that sent it."""


class NotAdmitted(RequestError):  # noqa: N818  # named for what is wrong
    """Nobody known: no credential or token, or one that is not good. Act: whoever asked, by joining."""


class Forbidden(RequestError):  # noqa: N818  # named for the answer, as HTTP and gRPC do
    """Somebody known who may not do this. Act: whoever asked, or the operator who gave the credential."""


class TooMany(RequestError):  # noqa: N818  # named for what is wrong
    """More of these at once than this collector looks at. Act: whoever asked, by waiting `delay_us` (microseconds)."""

    def __init__(self, message: str, *, delay_us: int = 1_000_000) -> None:
        super().__init__(message)
        self.delay_us = delay_us


class TookTooLong(RequestError):  # noqa: N818  # named for what is wrong
    """A question that the database did not answer in time. Act: whoever asked, by asking for less, or the operator."""


class DatabaseUnavailable(CollectorError):  # noqa: N818  # a state that passes
    """The database is away, restarting, or asked for a retry. Act: nobody; the same request again will do.

    `at_once` when there is no need to wait: a transaction gave way to another, or only the connection was lost.
    """

    def __init__(self, message: str, *, at_once: bool = False) -> None:
        super().__init__(message)
        self.at_once = at_once


class PartitionMissing(DatabaseUnavailable):
    """Rounds were to be stored that have no partition any more, or none yet. Act: nobody; tried again they are late."""


class CollectorUnreachable(CollectorError):  # noqa: N818  # a state, and the name the operator's message uses
    """No collector answers. Act: the operator, on the address or on the collector."""

    exit_code = 3
