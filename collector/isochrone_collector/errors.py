"""Errors of the collector. The docstring of each says who must act; the operator also gets a hint.

A plan document with problems is not an error but a result: see `plans.document`. A sample that is not accepted is a
`Rejection` in the receipt.
"""

from collections.abc import Collection
from typing import Self

from isochrone_wire.errors import IsochroneError
from isochrone_wire.text import nearest, unknown

_NAMED_TARGETS = 200


class CollectorError(IsochroneError):
    """Root of the tree."""


class SettingsError(CollectorError):
    """A setting is invalid. Act: the operator, in the flags, the environment or the file."""

    exit_code = 2


class StartError(CollectorError):
    """The collector cannot start. Act: the operator, on this machine."""


class EmbeddedError(StartError):
    """The embedded PostgreSQL is missing, in use or does not start. Act: the operator."""


class DatabaseUnreachable(StartError):  # noqa: N818  # a state, and the name the operator's message uses
    """No PostgreSQL answers. Act: the operator. `is_passing` if the server is starting, full or a standby."""

    def __init__(self, message: str, *, hint: str = "", is_passing: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_passing = is_passing


class SchemaError(StartError):
    """The collector does not know the database's revision. Act: the operator, by upgrading the collector."""


class RequestError(CollectorError):
    """A request is refused. Act: the client."""


class BadRequest(RequestError):  # noqa: N818  # named for the status, as HTTP and gRPC do
    """The request can never succeed as it is. Act: the client, by changing it."""


class UnknownName(RequestError):  # noqa: N818  # named for what is wrong
    """A name does not exist. Act: the client. `known` are the existing names, `nearest` the most similar one."""

    def __init__(
        self, message: str, *, hint: str = "", known: Collection[str] = (), nearest: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.known = sorted(known)
        self.nearest = nearest

    @classmethod
    def among(cls, kind: str, name: str, known: Collection[str]) -> Self:
        """Return the error for a `name` of some kind that is not among the known ones."""
        return cls(unknown(kind, name, known), known=known, nearest=nearest(name, known))


class Conflict(RequestError):  # noqa: N818  # named for the state
    """The request contradicts recorded data. Act: the operator of the vantage that sent it."""


class SequenceConflict(RequestError):  # noqa: N818  # named for what is wrong
    """A batch has the number of a stored batch and other samples. Act: the agent, by sealing them under a new epoch."""


class UnknownTargets(RequestError):  # noqa: N818  # named for what is wrong
    """A batch has `targets` of no plan, and is not stored. Act: the agent keeps it, the operator applies a plan."""

    def __init__(self, targets: Collection[int]) -> None:
        self.targets = sorted(targets)[:_NAMED_TARGETS]
        super().__init__(f"no plan here has {len(targets)} of the targets of this batch: {self.targets[:3]}")


class Unauthenticated(RequestError):  # noqa: N818  # named for what is wrong
    """The client is unknown: it has no credential or token, or an invalid one. Act: the client, by joining."""


class Forbidden(RequestError):  # noqa: N818  # named for the status, as HTTP and gRPC do
    """The client has no permission for this. Act: the client, or the operator that issued the credential."""


class ResourceExhausted(RequestError):  # noqa: N818  # named for what is wrong
    """There are too many of these requests at once. Act: the client, by waiting `delay_us` (microseconds)."""

    def __init__(self, message: str, *, delay_us: int = 1_000_000) -> None:
        super().__init__(message)
        self.delay_us = delay_us


class MessageTooLarge(RequestError):  # noqa: N818  # named for what is wrong
    """The request exceeds the size limit, before or after inflation. Act: the client, by sending less at once."""


class DeadlineExceeded(RequestError):  # noqa: N818  # named for what is wrong
    """A query did not finish in time, or a request did not arrive in time. Act: the client, or the operator."""


class DatabaseUnavailable(CollectorError):  # noqa: N818  # a transient state
    """The database is away or asks for a retry, perhaps `at_once`, by its `condition`. Act: the client, by a retry."""

    is_passing = True

    def __init__(self, message: str, *, hint: str = "", condition: str = "other", at_once: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.condition = condition
        self.at_once = at_once


class DiskLow(DatabaseUnavailable):
    """The disk of the embedded PostgreSQL has too little room. Act: the operator, by making room."""


class DatabaseSetBack(DatabaseUnavailable):
    """The database lacks what was read from it: it was restored, or a standby that lagged was promoted."""


class ClockSkew(DatabaseUnavailable):
    """The clock of an agent is more than a day from the collector's. Act: the operator of the one that is wrong."""


class PartitionMissing(DatabaseUnavailable):
    """Samples have rounds without a partition. Act: nothing; on retry they are set aside as late."""


class CollectorUnreachable(CollectorError):  # noqa: N818  # a state, and the name that the operator's message uses
    """No collector answers. Act: the operator, on the address or on the collector."""

    exit_code = 3


class CollectorAbsent(CollectorUnreachable):
    """Nothing answers at the address, perhaps not yet. Act: the operator starts the collector, or waits."""
