"""The doctor on real collectors: what is well is ok, and what is not has a hint; and the receiver of alerts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from fixtures.collector import Collector, StartCollector, run_command
from fixtures.postgres import rows
from isochrone_collector import webhook_signature
from isochrone_collector.clock import now_at
from isochrone_collector.store.postgres import embedded
from isochrone_wire.model import SECOND_US, Batch, Heartbeat, Vantage

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
US = Vantage(name="us-1", region="us-east-2")


def consult(collector: Collector, *more: str) -> tuple[int, dict[str, Any]]:
    database = ("--database-url", collector.database_url) if collector.database_url else ()
    told = ("--data-dir", str(collector.data_dir), "--collector", collector.address)
    done = run_command("doctor", *told, *database, "--output", "json", *more)
    document = json.loads(done.stdout)
    assert document["schema"] == "isochrone.doctor/1"
    return done.returncode, {finding["check"]: finding for finding in document["findings"]}


def test_a_collector_that_is_well(start_collector: StartCollector, tmp_path: Path) -> None:
    """The embedded server, its schema, partitions, clock and plan are ok, and the doctor changes none of them."""
    collector = start_collector(data_dir=tmp_path / "data")
    collector.call.apply(PLAN)
    collector.call.push(Batch(vantage=US, epoch=5, seq=0, heartbeat=Heartbeat(next_heartbeat_us=900 * SECOND_US)))
    code, found = consult(collector)
    assert (code, found["vantages"]["verdict"]) == (0, "warn"), found
    assert "us-1: no samples" in found["vantages"]["sentence"]
    well = (
        "software",
        "data folder",
        "postgresql",
        "durability",
        "latency",
        "schema",
        "partitions",
        "clock",
        "plan",
        "health",
    )
    assert {name: found[name]["verdict"] for name in well} == dict.fromkeys(well, "ok")
    assert found["certificate"]["sentence"].startswith("plain text")
    table = run_command("doctor", "--data-dir", str(collector.data_dir), "--collector", collector.address)
    assert "ok    partitions    there from" in table.stdout
    assert table.returncode == 0


def test_what_is_broken_is_found(start_collector: StartCollector, tmp_path: Path) -> None:
    """A missing partition and a DEFAULT one are failures, each with a hint, and the exit code says so."""
    collector = start_collector(data_dir=tmp_path / "data")
    conninfo = embedded.running(collector.data_dir)
    assert conninfo
    for _ in range(3):
        with psycopg.connect(conninfo, autocommit=True) as connection:
            [name] = connection.execute(
                "SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'sample'::regclass"
            ).fetchone() or [""]
            connection.execute(f"DROP TABLE {name}")  # a name of the server's own
        code, found = consult(collector)
        # A collector that has just begun to lead makes it again, and then not for an hour.
        if code:
            break
    assert (code, found["partitions"]["verdict"]) == (1, "fail")
    assert found["partitions"]["sentence"].startswith("none for 2")
    assert found["plan"]["verdict"] == "warn"
    rows(conninfo, "CREATE TABLE rest PARTITION OF sample DEFAULT")
    assert "DEFAULT partition" in consult(collector)[1]["partitions"]["sentence"]


def test_a_removed_audit_entry_is_found(start_collector: StartCollector, tmp_path: Path) -> None:
    """The newest entry of the last check must still be there, also after later ones, until its file is removed."""
    collector = start_collector(data_dir=tmp_path / "data")
    collector.call.invite("jp-1")
    found = consult(collector)[1]["audit"]
    assert (found["verdict"], "this user owns the table" in found["sentence"]) == ("ok", True)
    conninfo = embedded.running(collector.data_dir)
    assert conninfo
    rows(conninfo, "DELETE FROM audit")
    for name in ("jp-2", "jp-3"):
        collector.call.invite(name)
        assert consult(collector)[1]["audit"]["verdict"] == "fail"
    (collector.data_dir / "audit.head").unlink()
    assert consult(collector)[1]["audit"]["sentence"].startswith("each of 2 entries")


def test_under_tls(start_collector: StartCollector, tmp_path: Path) -> None:
    """With the operator's identity of the data folder the doctor gets in, and says how long the certificate is good."""
    data_dir = tmp_path / "data"
    collector = start_collector(data_dir=data_dir, more=["--tls"])
    found = consult(collector, "--identity", str(data_dir / "operator.json"))[1]
    assert (found["health"]["verdict"], found["vantages"]["verdict"]) == ("ok", "warn")
    assert found["certificate"]["verdict"] == "ok"
    assert found["certificate"]["sentence"].startswith("valid for 36")


def test_nobody_home(tmp_path: Path, empty_database_url: str) -> None:
    """Without collector and database doctor says what is there; one never migrated is no failure by itself."""
    done = run_command("doctor", "--data-dir", str(tmp_path), "--collector", "127.0.0.1:1")
    assert done.returncode == 1
    assert "fail  database      no embedded PostgreSQL runs over" in done.stdout
    assert "fail  health        no collector answers at 127.0.0.1:1" in done.stdout
    assert "is `isochrone-collector serve` running?" in done.stdout
    assert "Traceback" not in done.stderr
    done = run_command("doctor", "--database-url", empty_database_url, "--data-dir", str(tmp_path / "none"))
    assert "warn  schema        the database was never migrated" in done.stdout
    assert "partitions" not in done.stdout


def test_settings_that_make_replies_slow_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting of a real server that differs from the embedded server's is reported."""
    slow = {
        "wal_compression": "pglz",
        "max_wal_size": "1GB",
        "backend_flush_after": "0",
        "autovacuum_vacuum_cost_delay": "2ms",
    }
    for name, value in slow.items():
        monkeypatch.setitem(embedded._SETTINGS, name, value)
    with embedded.EmbeddedPostgres(tmp_path / "server") as server:
        url = f"postgresql:///?{urlencode(conninfo_to_dict(server.conninfo))}"
        done = run_command("doctor", "--database-url", url, "--data-dir", str(tmp_path), "--output", "json")
    findings = json.loads(done.stdout)["findings"]
    found = {one["sentence"] for one in findings if (one["check"], one["verdict"]) == ("latency", "warn")}
    assert found == {f"{name} is {value}" for name, value in slow.items()}


@pytest.mark.parametrize("url", ["postgresql://ida:geheim@127.0.0.1:1/isochrone", "postgresql://ida:geheim@:x"])
def test_no_password_is_shown(url: str, tmp_path: Path) -> None:
    """A database that cannot be reached is a failure that does not repeat the password."""
    done = run_command("doctor", "--database-url", url, "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "fail  database" in done.stdout
    assert "geheim" not in done.stdout + done.stderr


SECRET = b"a secret of thirty-two bytes 123"
BODY = b'{"type":"isochrone.test"}'


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    file = tmp_path / "alert.secret"
    file.write_text(webhook_signature.format_secret(SECRET))
    command = [sys.executable, "-m", "isochrone_collector", "alerts", "listen", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--alert-secret-file", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    yield process, process.stderr.readline().split()[-1]
    process.terminate()
    process.communicate()


def test_good_alerts_are_printed_once_and_others_refused(listening: tuple[subprocess.Popen[str], str]) -> None:
    """A signed alert is a line on stdout, its repetition is taken silently, and a forged one is a 401."""
    process, address = listening
    headers = webhook_signature.headers(SECRET, message="alert_1", sent_s=now_at() // SECOND_US, body=BODY)
    forged = headers | {"webhook-signature": "v1,AAAA"}
    with httpx.Client(trust_env=False) as client:
        statuses = [client.post(address, content=BODY, headers=one).status_code for one in (headers, headers, forged)]
        statuses.append(client.post(address, content=b"x" * 70_000, headers=headers).status_code)
    assert statuses == [204, 204, 401, 411]
    process.terminate()
    assert process.stdout is not None
    assert process.stdout.read() == BODY.decode() + "\n"
