"""A database that vanishes, freezes, is promoted or refuses: pushes fail with a named, transient error and succeed
within half a minute, once.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import grpc
import psycopg
import pytest

from fixtures.collector import Collector, StartCollector
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.postgres import opened
from isochrone_collector import clock
from isochrone_collector.errors import DatabaseUnavailable
from isochrone_collector.store.postgres import connection as connection_module
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.connection import Connection
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, Vantage
from testdata.database_servers import DatabaseRelay, ask, make_standby, promote, url_of_all
from testdata.waiting import BUSY

US = Vantage(name="us-1", region="us")
PLAN = "baseline: us\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
RECOVERY_S = 30.0
WAITING_FOR_STANDBY = "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

_log = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("first")) as server:
        schema.migrate(server.conninfo)
        yield server


@pytest.fixture
async def relay(postgres: EmbeddedPostgres) -> AsyncIterator[DatabaseRelay]:
    """A relay in front of it, without samples of other tests."""
    ask(postgres, "TRUNCATE sample, ingest_batch, plan, target, vantage")
    relay = DatabaseRelay(postgres.conninfo)
    await relay.start()
    yield relay
    await relay.stop()


@pytest.fixture
async def local(relay: DatabaseRelay) -> AsyncIterator[InProcessCollector]:
    async with opened(relay.url) as database:
        local = InProcessCollector(database)
        await local.begin(DAY_AT + SECOND_US)
        yield local


async def push(local: InProcessCollector, seq: int) -> None:
    await local.push(US, [local.sample(DAY_AT + seq * SECOND_US)], seq=seq)


async def refused(local: InProcessCollector, seq: int) -> DatabaseUnavailable:
    """Push until it is refused; return the error."""
    async with asyncio.timeout(BUSY * RECOVERY_S):
        with pytest.raises(DatabaseUnavailable) as caught:
            await push(local, seq)
    return caught.value


async def accepted(local: InProcessCollector, seq: int) -> float:
    began = time.monotonic()
    async with asyncio.timeout(BUSY * RECOVERY_S):
        while True:
            with suppress(DatabaseUnavailable):
                await push(local, seq)
                return time.monotonic() - began
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_black_hole(relay: DatabaseRelay, postgres: EmbeddedPostgres, local: InProcessCollector) -> None:
    """A push into a black hole is refused as transient, and once the database is back it is stored, once."""
    await push(local, 1)
    relay.swallowing = True
    began = time.monotonic()
    error = await refused(local, 2)
    _log.info("refused after %.1f s", time.monotonic() - began)
    assert error.condition in {"no_answer", "unreachable"}
    relay.swallowing = False
    _log.info("accepted %.1f s after the end of the black hole", await accepted(local, 2))
    assert ask(postgres, "SELECT count(*)::int FROM sample") == 2


@contextmanager
def frozen(server: EmbeddedPostgres) -> Iterator[None]:
    """Stop every process of a server for a while."""
    assert server.pid is not None
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    pids = [server.pid, *map(int, children)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
async def test_a_frozen_server(postgres: EmbeddedPostgres, local: InProcessCollector) -> None:
    """A server that accepts connections and answers nothing does not hold a push for long."""
    await push(local, 1)
    with frozen(postgres):
        error = await refused(local, 2)
        assert error.condition == "no_answer"
    await accepted(local, 2)
    assert ask(postgres, "SELECT count(*)::int FROM sample") == 2


async def test_a_read_only_server(postgres: EmbeddedPostgres, local: InProcessCollector) -> None:
    """While the server accepts no writes, the error names that; afterwards the push succeeds."""
    ask(postgres, "ALTER SYSTEM SET default_transaction_read_only = on")
    ask(postgres, "SELECT pg_reload_conf()")
    while ask(postgres, "SELECT (current_setting('default_transaction_read_only') = 'on')::int") != 1:
        await asyncio.sleep(0.05)
    error = await refused(local, 1)
    assert error.condition == "read_only"
    assert "list all hosts" in error.hint
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        connection.execute("SELECT pg_reload_conf()")
    await accepted(local, 1)


@pytest.mark.slow
async def test_too_many_connections(postgres: EmbeddedPostgres, relay: DatabaseRelay) -> None:
    """While another client holds all connections, the error names that; afterwards the database can be used."""
    ask(postgres, "CREATE ROLE guest LOGIN CONNECTION LIMIT 1")
    url = relay.url.replace("user=isochrone", "user=guest")
    guest = Database(url)
    await guest.open()
    ask(postgres, "SELECT pg_terminate_backend(pid)::int FROM pg_stat_activity WHERE usename = 'guest'")
    held = await connected(url)
    with pytest.raises(DatabaseUnavailable, match="too many connections") as caught:
        async with guest.connection():
            pass
    assert caught.value.condition == "too_many_connections"
    await held.close()
    async with asyncio.timeout(BUSY * RECOVERY_S):
        while True:
            with suppress(DatabaseUnavailable):
                async with guest.connection():
                    break
    await guest.close()


async def test_a_fresh_connection(postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection needs no check within a second of an answer, until the server ends it."""
    async with await Connection.connect(postgres.conninfo) as connection:

        def is_fresh() -> bool:
            return connection.is_fresh

        assert not is_fresh()
        await connection.execute("SELECT 1")
        assert is_fresh()
        with monkeypatch.context() as later:
            later.setattr(connection_module, "monotonic", lambda: time.monotonic() + 2)
            assert not is_fresh()
        await connection.execute("SELECT 1")
        ask(postgres, f"SELECT pg_terminate_backend({connection.info.backend_pid}, 5000)::int")
        assert not is_fresh()


async def connected(url: str) -> psycopg.AsyncConnection:
    while True:
        with suppress(psycopg.OperationalError):
            return await psycopg.AsyncConnection.connect(url)
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_repetition_waits_for_the_standby(tmp_path: Path) -> None:
    """A batch that only the primary has, because it crashed during the commit, is not acknowledged when repeated."""
    first_home, second_home = tmp_path / "first", tmp_path / "second"
    with EmbeddedPostgres(first_home) as primary, make_standby(primary, second_home) as standby:
        schema.migrate(primary.conninfo)
        async with collector_on(primary) as local, collector_on(primary) as behind:
            await push(local, 1)
            await push(behind, 1)
            behind.clock.at -= 60 * SECOND_US
            with frozen(standby):
                pushing = asyncio.create_task(refused(local, 2))
                while ask(primary, WAITING_FOR_STANDBY) == 0:
                    await asyncio.sleep(0.05)
                with killed(primary):
                    while not primary.restart_if_gone():
                        await asyncio.sleep(0.05)
                await pushing
                assert ask(primary, "SELECT count(*)::int FROM sample") == 2
                error = await refused(behind, 2)
                assert error.condition == "no_answer"
            await accepted(behind, 2)
            assert ask(primary, "SELECT count(*)::int FROM sample") == 2


@asynccontextmanager
async def collector_on(server: EmbeddedPostgres) -> AsyncIterator[InProcessCollector]:
    """A collector that waits for a statement for a second only."""
    async with opened(server.conninfo) as database:
        local = InProcessCollector(database)
        await local.begin(DAY_AT + SECOND_US)
        await local.plans.refresh()
        database._answer_within_s = 1.0
        yield local


async def test_a_full_disk_is_named(local: InProcessCollector) -> None:
    """The server's error for a full disk is transient and named."""
    with pytest.raises(DatabaseUnavailable) as caught:
        async with local.database.connection():
            raise psycopg.errors.DiskFull("could not extend file: No space left on device")
    assert caught.value.condition == "disk_full"


def batch(target_id: int, seq: int) -> Batch:
    now_at = clock.now_at()
    sample = Sample(target_id=target_id, round_at=now_at, outcome=Outcome.OK, dispatched_at=now_at)
    return Batch(vantage=US, epoch=5, seq=seq, samples=(sample,))


def acknowledged(collector: Collector, sent: Batch) -> float:
    """Push until it is acknowledged; return the seconds. Every refusal must be UNAVAILABLE."""
    began = time.monotonic()
    while time.monotonic() < began + BUSY * RECOVERY_S:
        try:
            collector.call.push(sent)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            time.sleep(0.1)
        else:
            return time.monotonic() - began
    raise AssertionError("the push was not acknowledged")


@pytest.mark.slow
@pytest.mark.parametrize("vanish", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_new_primary_is_used(tmp_path: Path, start_collector: StartCollector, vanish: signal.Signals) -> None:
    """After the primary's end and the promotion of its standby, pushes succeed there, and jobs have a leader."""
    with EmbeddedPostgres(tmp_path / "first") as primary, make_standby(primary, tmp_path / "second") as standby:
        collector = start_collector(database_url=url_of_all(primary, standby))
        collector.apply(PLAN, tmp_path)
        [target, *_] = collector.call.targets().targets
        collector.call.push(batch(target.id, 1))
        with frozen(primary) if vanish is signal.SIGSTOP else killed(primary):
            promote(standby)
            _log.info("acknowledged %.1f s after the promotion", acknowledged(collector, batch(target.id, 2)))
            assert ask(standby, "SELECT count(*)::int FROM sample") == 2
            until(lambda: collector.log().count("leadership.taken") > 1)


@contextmanager
def killed(server: EmbeddedPostgres) -> Iterator[None]:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    yield


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BUSY * RECOVERY_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
