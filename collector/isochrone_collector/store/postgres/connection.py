"""One connection to PostgreSQL, which ends when its server is gone.

The laws:

1. A host that vanished without closing its connections is noticed by the kernel: unanswered keepalives and unconfirmed
   bytes end a connection after about ten seconds.
2. A server that is frozen still confirms packets. So every step of the protocol has a time limit, after which the
   connection is closed: `NoAnswer`.
3. The server ends what a lost client left: it checks its clients, too, and ends transactions in which nothing happens.
   Otherwise the ledger rows of a lost push would block its repetition.
4. Of several hosts the one that accepts writes is used, so a new connection finds a new primary.

Conditions are those in which a request fails now and may succeed later: psycopg's errors are translated into ours.
"""

import re
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from time import monotonic
from typing import Any, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, errors, pq
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout

from isochrone_collector.errors import BadRequest, DatabaseUnavailable, PartitionMissing, StartError
from isochrone_common.address import Address

ANSWER_WITHIN_S = 15.0
"""Default time limit of one step, such as a statement or a commit, in seconds."""
CONNECT_WITHIN_S = 5

Value = TypeVar("Value")

_INTERVAL_S = 0.1
_FRESH_S = 1.0
_PARAMETERS: dict[str, Any] = {
    "connect_timeout": CONNECT_WITHIN_S,
    "application_name": "isochrone-collector",
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    # Milliseconds; only Linux has it.
    "tcp_user_timeout": 10_000,
}


class NoAnswer(psycopg.OperationalError):
    """The server did not complete a step in time; the connection is closed."""


class Connection(AsyncConnection[Any]):
    """A connection whose steps take at most `answer_within_s` seconds each."""

    answer_within_s: float = ANSWER_WITHIN_S
    _answered_at: float = 0.0

    @property
    def is_fresh(self) -> bool:
        """True if the server answered within the last second, and has sent nothing since, such as the end."""
        if self.closed or monotonic() - self._answered_at > _FRESH_S:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)

    @classmethod
    async def connect(  # type: ignore[override]  # our options only
        cls,
        conninfo: str = "",
        *,
        on_failure: Callable[[psycopg.Error], None] | None = None,
        **given: Any,  # noqa: ANN401  # parameters of libpq
    ) -> Self:
        """Connect; a failure is also handed to `on_failure`, because a pool does not raise it."""
        try:
            return await super().connect(conninfo, autocommit=True, **given)
        except psycopg.Error as error:
            if on_failure is not None:
                on_failure(error)
            raise

    async def wait(
        self,
        gen: PQGen[Value],
        interval: float = _INTERVAL_S,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of psycopg
    ) -> Value:
        """Wait for one step of the protocol. Raises `NoAnswer`, unless the caller chose the `timeout`."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        try:
            answer = await super().wait(gen, interval, self.answer_within_s)
        except psycopg.errors._WaitTimeout as error:  # noqa: SLF001  # documented as what `wait` raises
            # Closing it properly would wait for the server.
            self.pgconn.finish()
            raise NoAnswer(f"the server did not answer within {self.answer_within_s:g} s") from error
        self._answered_at = monotonic()
        return answer


def parameters(conninfo: str) -> dict[str, Any]:
    """Return the parameters of a connection that the connection string does not set itself."""
    given = conninfo_to_dict(conninfo)
    chosen = {**_PARAMETERS}
    if "," in str(given.get("host") or given.get("hostaddr") or ""):
        chosen["target_session_attrs"] = "read-write"
    return {name: value for name, value in chosen.items() if given.get(name) is None}


def unverified_hosts(conninfo: str) -> list[str]:
    """Return the hosts on other machines for which libpq's `sslmode`, set or by default, is below `verify-full`."""
    usual = {option.keyword.decode(): (option.val or b"").decode() for option in pq.Conninfo.get_defaults()}
    chosen = usual | {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    if chosen["sslmode"] == "verify-full":
        return []
    hosts = (chosen["host"] or chosen["hostaddr"]).split(",")
    # Without a host, and with a path or an abstract name, libpq uses a Unix socket.
    return [host for host in hosts if host and host[0] not in "/@" and not Address(host, 0).is_loopback]


class Condition(StrEnum):
    """A condition of the database, as metrics and logs name it."""

    UNREACHABLE = "unreachable"
    NO_ANSWER = "no_answer"
    READ_ONLY = "read_only"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    DISK_FULL = "disk_full"
    CONFLICT = "conflict"
    WORKER_LOST = "worker_lost"
    OTHER = "other"


_SENTENCES: Mapping[Condition, tuple[str, str]] = {
    Condition.UNREACHABLE: (
        "the database is unreachable",
        "check that the server runs and that --database-url names it",
    ),
    Condition.NO_ANSWER: (
        "the database does not answer",
        "check its load and its disk; of a Citus cluster, `isochrone-collector doctor` names the worker that hangs",
    ),
    Condition.READ_ONLY: (
        "the database is read-only",
        "if it is a standby, list all hosts in --database-url; else check default_transaction_read_only",
    ),
    Condition.TOO_MANY_CONNECTIONS: (
        "the database has too many connections",
        "raise max_connections, or end other clients; a collector uses up to 20",
    ),
    Condition.DISK_FULL: ("the disk of the database is full", "make room there; agents keep their samples meanwhile"),
    Condition.CONFLICT: ("the database asks for a retry", ""),
    Condition.WORKER_LOST: (
        "a worker of the Citus cluster is lost",
        "start it, or promote its standby; `isochrone-collector doctor` names every lost worker",
    ),
    Condition.OTHER: ("the database is unavailable at the moment", ""),
}
_STATES: Mapping[str, Condition] = {
    "25006": Condition.READ_ONLY,
    "53300": Condition.TOO_MANY_CONNECTIONS,
    "53100": Condition.DISK_FULL,
    "40001": Condition.CONFLICT,
    "40P01": Condition.CONFLICT,
    "57P01": Condition.UNREACHABLE,
    "57P02": Condition.UNREACHABLE,
    "57P03": Condition.UNREACHABLE,
}
_STANDBY = "session is read-only"
# psycopg's list of the hosts in vain, when there are several.
_EACH_HOST = "\n- host: "
# PostgreSQL reports these without a state while it connects, and Citus passes a worker's errors on as XX000.
_TEXTS: tuple[tuple[str, Condition], ...] = (
    ("too many clients already", Condition.TOO_MANY_CONNECTIONS),
    ("remaining connection slots are reserved", Condition.TOO_MANY_CONNECTIONS),
    ("too many connections", Condition.TOO_MANY_CONNECTIONS),
    (_STANDBY, Condition.READ_ONLY),
    ("connection timeout expired", Condition.NO_ANSWER),
    ("No space left on device", Condition.DISK_FULL),
    ("failure on connection marked as essential", Condition.WORKER_LOST),
    ("connection to the remote node", Condition.WORKER_LOST),
    ("could not establish any connections to the node", Condition.WORKER_LOST),
    ("terminating connection due to unexpected postmaster exit", Condition.WORKER_LOST),
    # The coordinator ends.
    ("postmaster was shut down, exiting", Condition.UNREACHABLE),
    # psycopg has received the end of the connection together with the answer.
    ("results from command", Condition.UNREACHABLE),
)
# Why a connection fails while a server is away, starting or full, or no host is the primary. Others, such as a wrong
# password, an unknown host or a certificate, need an operator.
_PASSING = re.compile(
    r"Connection refused|Connection reset|on socket \".*\" failed: No such file|closed the connection unexpectedly"
    r"|timeout expired|the database system is |session is read-only"
    r"|too many clients|connection slots are reserved|too many connections"
)
# Only libpq asks it; readers would take it for a question to them.
_QUESTION = re.compile(r"\s*Is the server running [^?]*\?")
_NO_PARTITION = "no partition of relation"
# The driver refuses to send it: PostgreSQL cannot store it.
_NUL = "cannot contain NUL"
# Transient errors: the server is away, full, starting or demoted, or wants the transaction to be retried.
_TRANSIENT = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)


def condition_of(error: Exception) -> Condition | None:
    """Return the condition behind an error; `None` if repeating the request would not help."""
    state = (error.sqlstate if isinstance(error, psycopg.Error) else None) or ""
    if state in _STATES:
        return _STATES[state]
    if isinstance(error, NoAnswer | errors.ConnectionTimeout):
        return Condition.NO_ANSWER
    if not isinstance(error, (*_TRANSIENT, psycopg.InternalError)):
        return None
    reason = _telling(str(error))
    for text, condition in _TEXTS:
        if text in reason:
            return condition
    if isinstance(error, psycopg.InternalError):
        return None
    return Condition.UNREACHABLE if not state or state.startswith("08") else Condition.OTHER


def is_passing(error: psycopg.Error) -> bool:
    """Return whether the same connection may succeed in a moment, without an operator."""
    return _PASSING.search(_telling(str(error))) is not None


def _telling(text: str) -> str:
    """Return the part of an error's text that tells the condition: a standby is read-only whatever the primary has."""
    _, *hosts = text.split(_EACH_HOST)
    return "".join(host for host in hosts if _STANDBY not in host) or text


@contextmanager
def translated() -> Iterator[None]:
    """Translate psycopg's errors into the collector's."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise StartError(
            f"the database user lacks a privilege: {error}", hint="grant it the schema, or make it the owner"
        ) from error
    except psycopg.Error as error:
        if isinstance(error, psycopg.DataError) and _NUL in str(error):
            raise BadRequest("a text of the request contains NUL") from error
        if isinstance(error, errors.InternalError_) and _NO_PARTITION in str(error):
            raise PartitionMissing(f"a partition is missing: {_line(error)}") from error
        condition = condition_of(error)
        if condition is None:
            raise
        raise unavailable(error, condition) from error


def unavailable(error: Exception, condition: Condition, *, reason: Exception | None = None) -> DatabaseUnavailable:
    """Return the error for a condition, with the server's reason: by default the text of the error."""
    sentence, hint = _SENTENCES[condition]
    return DatabaseUnavailable(
        f"{sentence}: {_line(reason or error)}",
        hint=hint,
        condition=condition.value,
        at_once=_may_do_at_once(error, condition),
    )


def _may_do_at_once(error: Exception, condition: Condition) -> bool:
    """Return whether a retry may succeed at once: the transaction lost a conflict, or its connection was lost."""
    if isinstance(error, PoolTimeout):
        return False
    return condition in (Condition.CONFLICT, Condition.UNREACHABLE) and getattr(error, "sqlstate", None) != "57P03"


def _line(error: Exception) -> str:
    return " ".join(_QUESTION.sub("", str(error)).split())
