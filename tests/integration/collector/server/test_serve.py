"""The collector process: start, stop, recovery, and errors at the start."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.collector import Collector, StartCollector, run_command
from fixtures.postgres import rows
from isochrone_collector import clock
from isochrone_collector.errors import DatabaseUnavailable, DatabaseUnreachable
from isochrone_collector.server import serve
from isochrone_collector.server.certificates import Certificates, OperatorFile
from isochrone_collector.settings import Settings, Tls
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_common.address import Address
from isochrone_wire import codec
from isochrone_wire.answers import Selection, Window
from isochrone_wire.model import Batch, Outcome, Sample, Vantage
from isochrone_wire.operations import Receipt
from testdata.preforked import Program
from testdata.waiting import eventually

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
VANTAGE = Vantage(name="us-1", region="us-east-2")


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def a_batch(target_id: int, seq: int) -> Batch:
    now_at = clock.now_at()
    sample = Sample(target_id=target_id, round_at=now_at, outcome=Outcome.OK, dispatched_at=now_at)
    return Batch(vantage=VANTAGE, epoch=5, seq=seq, samples=(sample,))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it(start_collector: StartCollector, how: signal.Signals) -> None:
    """SIGTERM and Ctrl-C end the collector in order: exit code 0, and a log event."""
    collector = start_collector()
    assert collector.database == "external"
    assert collector.stop(how) == 0
    events = [json.loads(line)["event"] for line in collector.log().splitlines()]
    # Whoever leads may say so in between.
    own = [event for event in events if event.startswith("collector.")]
    assert own[-2:] == ["collector.stopping", "collector.stopped"]
    assert events[-1] == "collector.stopped"


def test_it_is_healthy_and_describes_itself(start_collector: StartCollector) -> None:
    """Health answers SERVING, and reflection lists the Isochrone services beside the standard ones."""
    collector = start_collector()
    channel = collector.call.channel
    status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert status.status == health_pb2.HealthCheckResponse.SERVING
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    [answer] = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked, timeout=10)
    names = {service.name for service in answer.list_services_response.service}
    assert {name for name in names if name.startswith("isochrone.")} == {
        "isochrone.v1.Fleet",
        "isochrone.v1.Operations",
    }
    assert "grpc.health.v1.Health" in names


def test_a_port_in_use_is_an_error(start_collector: StartCollector, tmp_path: Path) -> None:
    """A second collector on the port starts no PostgreSQL, and its error is the only output."""
    first = start_collector()
    data_dir = tmp_path / "second"
    done = run_command("serve", "--listen", first.address, "--data-dir", str(data_dir))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: cannot listen on {first.address}: address already in use\n"
        "hint: another collector may be running: stop it, or choose another --listen\n"
    )
    assert not data_dir.exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("serve", "--listen", "127.0.0.1:x"), 2, "error: "),
        (("serve", "--listen", "127.0.0.1:0", "--certificate", "a.pem"), 2, "--certificate without --key"),
        (
            ("migrate", "--database-url", "postgresql://ida:geheim@127.0.0.1:1/isochrone"),
            1,
            "postgresql://ida@127.0.0.1:1/isochrone",
        ),
        (("migrate", "--database-url", "geheim"), 2, "error: "),
        (("serve", "--listen", "127.0.0.1:0", "--database-url", "MISSING"), 1, 'database "missing" does not exist'),
    ],
)
def test_what_operators_must_mend_fails(database_url: str, words: tuple[str, ...], code: int, message: str) -> None:
    """An error at once, without a traceback, a password or waiting for the database."""
    missing = make_conninfo(database_url, dbname="missing")
    done = run_command(*(missing if word == "MISSING" else word for word in words))
    assert done.returncode == code
    assert message in done.stderr
    assert "hint:" in done.stderr or code == 2
    assert not [word for word in ("geheim", "Traceback", "database.waiting") if word in done.stderr + done.stdout]


@pytest.mark.parametrize("stopped", [False, True])
def test_it_waits_for_its_database(tmp_path: Path, *, stopped: bool) -> None:
    """A collector that starts before its database says so, and serves once the database is there; SIGTERM ends it."""
    sockets = tmp_path / "s"
    with EmbeddedPostgres(tmp_path / "server") as postgres:
        process = Program[str](
            *("isochrone_collector", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)),
            *("--database-url", make_conninfo(postgres.conninfo, host=str(sockets))),
            *("--http-listen", "off", "--log-format", "json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert "No such file" in next(line for line in process.stderr if "database.waiting" in line)
            if not stopped:
                sockets.symlink_to(str(conninfo_to_dict(postgres.conninfo)["host"]))
                assert json.loads(process.stdout.readline())["ready"]
            process.terminate()
            assert process.wait(20) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()
            process.communicate()


async def test_it_waits_only_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not come is an error."""
    monkeypatch.setattr(serve, "_DATABASE_WITHIN_S", 0.1)
    monkeypatch.setattr(serve, "_RETRY_S", 0.2)
    settings = Settings(listen=Address("127.0.0.1", 0), data_dir=tmp_path, database_url="postgresql://127.0.0.1:1/a")
    with pytest.raises(DatabaseUnreachable, match="Connection refused"):
        await serve.serve(settings, print)


async def test_the_database_may_go_away_during_the_start(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever needs it is done again: here, the credential of the operators' file."""
    monkeypatch.setattr(serve, "_RETRY_S", 0.1)
    lost, announced, write = [DatabaseUnavailable("gone"), None], asyncio.Event(), OperatorFile.write
    stop = asyncio.Event()
    monkeypatch.setattr(serve, "stop_event", lambda: stop)

    async def write_at_last(self: OperatorFile, certificates: Certificates) -> None:
        if error := lost.pop(0):
            raise error
        await write(self, certificates)

    monkeypatch.setattr(OperatorFile, "write", write_at_last)
    settings = Settings(listen=Address("127.0.0.1", 0), data_dir=tmp_path, database_url=database_url, tls=Tls())
    serving = asyncio.create_task(serve.serve(settings, lambda _: announced.set()))
    async with asyncio.timeout(30):
        await announced.wait()
    assert (tmp_path / "operator.json").exists()
    stop.set()
    await serving


def test_a_database_of_a_newer_collector_is_left_alone(database_url: str) -> None:
    """An unknown revision is named, and nothing is changed."""
    rows(database_url, "UPDATE alembic_version SET version_num = '9999'")
    done = run_command("serve", "--listen", "127.0.0.1:0", "--database-url", database_url)
    assert done.returncode == 1
    assert "9999" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_environment_is_read(empty_database_url: str) -> None:
    """ISOCHRONE_DATABASE_URL works like the flag, and `migrate` prints both revisions."""
    command = [sys.executable, "-m", "isochrone_collector", "migrate"]
    environment = {**os.environ, "ISOCHRONE_DATABASE_URL": empty_database_url}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "migrated from nothing to revision" in done.stdout
    again = run_command("migrate", "--database-url", empty_database_url)
    assert "already at revision" in again.stdout


def test_its_own_postgres_ends_with_it(start_collector: StartCollector, tmp_path: Path) -> None:
    """SIGTERM exits 0 and leaves no PostgreSQL; the next start finds the data."""
    data_dir = tmp_path / "data"
    first = start_collector(data_dir=data_dir)
    assert first.database == "embedded"
    first.call.apply(PLAN)
    target_id = first.call.targets().targets[0].id
    batch = a_batch(target_id, 1)
    assert first.call.push(batch).stored == 1
    server = postmaster(data_dir)
    assert alive(server)
    assert first.stop() == 0
    assert not alive(server)
    assert not (data_dir / "postgres" / "postmaster.pid").exists()
    second = start_collector(data_dir=data_dir)
    assert second.call.push(batch).duplicate == 1


def test_a_killed_collector_loses_nothing(start_collector: StartCollector, tmp_path: Path) -> None:
    """After kill -9 of the collector, the next start on its folder stops what is left over, and has every sample."""
    data_dir = tmp_path / "data"
    first = start_collector(data_dir=data_dir)
    first.call.apply(PLAN)
    target_id = first.call.targets().targets[0].id
    batches = [a_batch(target_id, seq) for seq in range(1, 6)]
    assert all(first.call.push(batch).stored == 1 for batch in batches)
    orphan = postmaster(data_dir)
    first.kill()
    assert alive(orphan)
    second = start_collector(data_dir=data_dir)
    assert not alive(orphan)
    window = Window(from_at=batches[0].samples[0].round_at, until_at=clock.now_at() + 1)
    assert len(second.call.samples(Selection(window=window))) == 5
    assert all(second.call.push(batch).duplicate == 1 for batch in batches)
    assert second.stop() == 0


def test_a_killed_postgres_is_started_again(start_collector: StartCollector, tmp_path: Path) -> None:
    """After kill -9 of PostgreSQL pushes fail as UNAVAILABLE for a moment, then go on, and nothing stored is lost."""
    data_dir = tmp_path / "data"
    collector = start_collector(data_dir=data_dir)
    collector.call.apply(PLAN)
    target_id = collector.call.targets().targets[0].id
    batch = a_batch(target_id, 1)
    assert collector.call.push(batch).stored == 1
    os.kill(postmaster(data_dir), signal.SIGKILL)
    codes: set[grpc.StatusCode] = set()

    def arrives() -> bool:
        try:
            return collector.call.push(batch).duplicate == 1
        except grpc.RpcError as error:
            codes.add(error.code())
            return False

    eventually(20, arrives, "pushes are stored again")
    assert codes <= {grpc.StatusCode.UNAVAILABLE}
    assert collector.stop() == 0


def test_two_collectors_do_not_share_a_folder(start_collector: StartCollector, tmp_path: Path) -> None:
    """The second ends with an error that names the first, which is not disturbed."""
    data_dir = tmp_path / "data"
    first = start_collector(data_dir=data_dir)
    done = run_command("serve", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir))
    assert done.returncode == 1
    assert f"in use by another collector (process {first.pid})" in done.stderr
    assert first.call.apply(PLAN).changed


def test_migrating_by_hand_and_serving_agree(empty_database_url: str, start_collector: StartCollector) -> None:
    """A database migrated by the command is served as it is."""
    schema.migrate(empty_database_url)
    collector = start_collector(database_url=empty_database_url)
    assert '"migrated": false' in collector.log()


def test_without_a_webhook_its_http_client_is_not_imported() -> None:
    """A collector starts without httpx, which only a webhook needs."""
    code = "import sys, isochrone_collector.server.serve; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def first_batch(collector: Collector) -> Batch:
    at = time.time_ns() // 1000
    target_id = collector.call.targets().targets[0].id
    sample = Sample(target_id=target_id, round_at=at, outcome=Outcome.OK, dispatched_at=at)
    return Batch(vantage=Vantage(name="us-1", region="us-east-2"), epoch=5, seq=1, samples=(sample,))


def somebody_waits(connection: psycopg.Connection) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    row = connection.execute(query).fetchone()
    return bool(row and row[0])


def test_calls_in_progress_are_answered(start_collector: StartCollector) -> None:
    """A push in flight at SIGTERM gets its receipt, while health says NOT_SERVING; then the process ends with 0."""
    collector = start_collector()
    collector.call.apply(PLAN)
    batch = codec.encode(first_batch(collector))
    watching = health_pb2_grpc.HealthStub(collector.call.channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)
    states = (answer.status for answer in watching)
    assert next(states) == SERVING
    with psycopg.connect(collector.database_url) as connection:
        connection.execute("LOCK TABLE ingest_batch IN ACCESS EXCLUSIVE MODE")
        push = collector.call.fleet.Push.future(batch, timeout=30)
        eventually(20, lambda: somebody_waits(connection), "the push waits for its commit")
        collector.process.send_signal(signal.SIGTERM)
        assert next(states) == NOT_SERVING
        assert not push.done()
    assert codec.decode(Receipt, push.result(timeout=20)).stored == 1
    assert collector.process.wait(20) == 0
    assert rows(collector.database_url, "SELECT count(*) FROM sample") == [(1,)]


def test_later_calls_are_refused(start_collector: StartCollector) -> None:
    """A push after the stop has begun is UNAVAILABLE, which an agent retries."""
    collector = start_collector()
    collector.call.apply(PLAN)
    batch = codec.encode(first_batch(collector))
    assert collector.stop() == 0
    with pytest.raises(grpc.RpcError) as refused:
        collector.call.fleet.Push(batch, timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
