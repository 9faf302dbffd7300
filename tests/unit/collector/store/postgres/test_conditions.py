"""Conditions of a database, from the errors of its driver."""

import psycopg
import pytest
from psycopg import errors
from psycopg.types.string import StrDumper
from psycopg_pool import PoolTimeout

from isochrone_collector.errors import BadRequest, DatabaseUnavailable, PartitionMissing
from isochrone_collector.store.postgres.connection import Condition, NoAnswer, condition_of, is_passing, translated

# The primary's reason, and that of a standby.
SEVERAL = (
    "session is read-only\nMultiple connection attempts failed. All failures were:\n"
    "- host: 'a', port: '1', hostaddr: 'a': {}\n- host: 'b', port: '1', hostaddr: 'b': session is read-only"
)


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), Condition.UNREACHABLE),
        (
            psycopg.OperationalError("FATAL: sorry, too many clients already"),
            Condition.TOO_MANY_CONNECTIONS,
        ),
        (psycopg.OperationalError("connection failed: session is read-only"), Condition.READ_ONLY),
        (
            psycopg.OperationalError(SEVERAL.format("FATAL: sorry, too many clients already")),
            Condition.TOO_MANY_CONNECTIONS,
        ),
        (psycopg.OperationalError(SEVERAL.format("server closed the connection")), Condition.UNREACHABLE),
        (psycopg.OperationalError(SEVERAL.format("connection timeout expired")), Condition.NO_ANSWER),
        (psycopg.OperationalError(SEVERAL.format("session is read-only")), Condition.READ_ONLY),
        (NoAnswer("the server did not answer within 15 s"), Condition.NO_ANSWER),
        (errors.ConnectionTimeout("connection timeout expired"), Condition.NO_ANSWER),
        (errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"), Condition.READ_ONLY),
        (errors.TooManyConnections("too many connections for role"), Condition.TOO_MANY_CONNECTIONS),
        (errors.DiskFull("could not extend file"), Condition.DISK_FULL),
        (errors.SerializationFailure("could not serialize access"), Condition.CONFLICT),
        (errors.AdminShutdown("terminating connection"), Condition.UNREACHABLE),
        (errors.LockNotAvailable("canceling statement due to lock timeout"), Condition.OTHER),
        (errors.InternalError_("failure on connection marked as essential: w:5432"), Condition.WORKER_LOST),
        (errors.InternalError_("terminating connection due to unexpected postmaster exit"), Condition.WORKER_LOST),
        (errors.InternalError_("postmaster was shut down, exiting"), Condition.UNREACHABLE),
        (psycopg.InternalError("received 2 results from command 'COMMIT'"), Condition.UNREACHABLE),
        (
            errors.ConnectionFailure("could not establish any connections to the node w:5432 after 5000 ms"),
            Condition.WORKER_LOST,
        ),
        (errors.InternalError_("cache lookup failed"), None),
        (errors.UniqueViolation("duplicate key"), None),
        (ValueError("too many connections"), None),
    ],
)
def test_each_error_has_its_condition(error: Exception, condition: Condition | None) -> None:
    """What may succeed later has a condition, and everything else has none."""
    assert condition_of(error) is condition


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ('connection to server at "::1", port 1 failed: Connection refused', True),
        ('connection to server on socket "/s/.s.PGSQL.5432" failed: No such file or directory', True),
        ("FATAL:  the database system is starting up", True),
        ("FATAL: the database system is not yet accepting connections", True),
        ("FATAL: sorry, too many clients already", True),
        ("server closed the connection unexpectedly", True),
        ("connection timeout expired", True),
        (SEVERAL.format("session is read-only"), True),
        (SEVERAL.format('FATAL: password authentication failed for user "ida"'), False),
        ('FATAL: password authentication failed for user "ida"', False),
        ('FATAL: database "missing" does not exist', False),
        ("fe_sendauth: no password supplied", False),
        ('could not read root certificate file "a": No such file or directory', False),
        ("[Errno -2] Name or service not known", False),
    ],
)
def test_what_passes_without_an_operator(text: str, *, passing: bool) -> None:
    """A start waits for a server that is away, starting, full or a standby, not for what an operator must change."""
    assert is_passing(psycopg.OperationalError(text)) is passing


def test_a_missing_partition_of_a_worker() -> None:
    """Citus reports a missing partition as an internal error; the samples are set aside on retry."""
    with pytest.raises(PartitionMissing), translated():
        raise errors.InternalError_('no partition of relation "sample_102008" found for row')


def test_a_text_with_nul_is_the_caller_s_fault() -> None:
    """PostgreSQL cannot store it: such a request is refused, and is no bug of the collector with a traceback."""
    with pytest.raises(BadRequest, match="NUL"), translated():
        StrDumper(str).dump("a\0b")


@pytest.mark.parametrize(
    ("error", "at_once"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (errors.DeadlockDetected("deadlock detected"), True),
        (errors.AdminShutdown("terminating connection"), True),
        (errors.CannotConnectNow("the database system is starting up"), False),
        (errors.DiskFull("could not extend file"), False),
        (PoolTimeout("couldn't get a connection"), False),
        (NoAnswer("the server did not answer"), False),
    ],
)
def test_what_is_over_is_retried_at_once(error: Exception, *, at_once: bool) -> None:
    """Only lost conflicts and lost connections are retried without a pause."""
    with pytest.raises(DatabaseUnavailable) as caught, translated():
        raise error
    assert caught.value.at_once is at_once
