"""One connection to PostgreSQL, which ends when its server is gone.

The laws:

1. A host that vanished without closing its connections is noticed by the kernel: unanswered keepalives and unconfirmed
   bytes end a connection after about ten seconds.
2. A server that is frozen still confirms packets. So every step of the protocol has a time limit, after which the
   connection is closed: `NoAnswer`.
3. The server ends what a lost client left: it checks its clients, too, and ends transactions in which nothing happens.
   Otherwise the ledger rows of a lost push would block its repetition.
4. Of several hosts the one that accepts writes is used, so a new connection finds a new primary.
"""

import select
from collections.abc import Callable
from time import monotonic
from typing import Any, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, pq
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

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
    """Return the hosts on other machines whose certificate connections do not verify: `sslmode` is below
    `verify-full`, in the connection string and in the environment of libpq.
    """
    usual = {option.keyword.decode(): (option.val or b"").decode() for option in pq.Conninfo.get_defaults()}
    chosen = usual | {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    if chosen["sslmode"] == "verify-full":
        return []
    hosts = (chosen["host"] or chosen["hostaddr"]).split(",")
    # Without a host, and with a path or an abstract name, libpq uses a Unix socket.
    return [host for host in hosts if host and host[0] not in "/@" and not Address(host, 0).is_loopback]
