"""`isochrone routes watch` and `export` against a real collector: across a crash no generation is lost or repeated."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import yaml
from click.testing import CliRunner, Result

from fixtures.collector import Collector, StartCollector
from isochrone_client.cli import cli
from isochrone_common.route_consumer import CLEARLY_LATER_US
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, Vantage
from isochrone_wire.routes import RouteState
from testdata.preforked import Program

PLAN = """\
baseline: us-east-2
every: 1s
targets:
  - {model: a, provider: one, base_url: http://h/v1, credential: one}
  - {model: b, provider: two, base_url: http://h/v1}
routes:
  - {name: chat, members: [one/a, two/b], slo: {class: chat}, static_order: [two/b]}
"""
PATIENCE = 60.0
REGIONS = ("us-east-2", "eu-central-1")


class Feeder:
    """A pusher of rounds of both targets from both regions; `b` takes twice as long as `a`."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.seq = 0
        self.ids = {target.name: target.id for target in collector.call.targets().targets}

    def push(self, collector: Collector, *, rounds: int, ago_us: int = 0) -> None:
        """Store `rounds` rounds that end `ago_us` microseconds ago."""
        self.seq += 1
        now_at = time.time_ns() // 1000 - ago_us
        for region in REGIONS:
            samples = tuple(
                Sample(
                    target_id=self.ids[name],
                    round_at=now_at - place * 1_000_000,
                    outcome=Outcome.OK,
                    dispatched_at=now_at,
                    ttft_us=ttft_us + place,
                )
                for place in range(rounds)
                for name, ttft_us in (("one/a", 200_000), ("two/b", 400_000))
            )
            batch = Batch(vantage=Vantage(name=f"{region}-1", region=region), epoch=3, seq=self.seq, samples=samples)
            collector.call.push(batch)


def ask(collector: Collector, *arguments: str) -> Result:
    """Run the command against this collector."""
    environment = {"ISOCHRONE_COLLECTOR": collector.http_address}
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="isochrone")


def watch(collector: Collector, *more: str) -> "subprocess.Popen[bytes]":
    """`isochrone routes watch` as a separate process, with one JSON document per line."""
    return Program[bytes](
        "isochrone_client",
        *("routes", "watch", "--output", "json", *more),
        env={**os.environ, "ISOCHRONE_COLLECTOR": collector.http_address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Kill the process at the end of the block, even if the test failed."""
    try:
        yield
    finally:
        process.kill()


def generations(process: "subprocess.Popen[bytes]") -> Iterator[int]:
    """Yield the printed generations as they arrive."""
    assert process.stdout is not None
    pending = b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        assert ready, "no table came in time"
        piece = os.read(process.stdout.fileno(), 65_536)
        if not piece:
            return
        *lines, pending = (pending + piece).split(b"\n")
        yield from (json.loads(line)["generation"] for line in lines)


def stored(collector: Collector) -> list[int]:
    """All generations, in order."""
    with psycopg.connect(collector.database_url) as connection:
        return [row[0] for row in connection.execute("SELECT generation FROM route_table ORDER BY generation")]


def grown(collector: Collector, feeder: Feeder, beyond: int) -> list[int]:
    """All generations, once continuing rounds have made more than one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = stored(collector)
        if found and found[-1] > beyond:
            return found
        time.sleep(0.5)
        feeder.push(collector, rounds=1)
    raise AssertionError(f"no generation beyond {beyond} was built:\n{collector.log()}")


def test_watching_survives_a_crash_of_the_collector(start_collector: StartCollector) -> None:
    """Across a SIGKILL and a restart each generation is printed once, in order: before, during and after the outage."""
    collector = start_collector()
    collector.call.apply(PLAN)
    feeder = Feeder(collector)
    feeder.push(collector, rounds=8)
    before = grown(collector, feeder, 1)
    with watch(collector) as process, ended(process):
        coming = generations(process)
        printed = [next(coming)]
        collector.kill()
        again = start_collector(port=collector.port, http_port=collector.http_port, database_url=collector.database_url)
        middle = grown(again, feeder, before[-1])
        last = grown(again, feeder, middle[-1])[-1]
        while printed[-1] < last:
            printed.append(next(coming))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        stderr = process.stderr.read().decode()
    every = stored(again)
    assert printed == [number for number in every if printed[0] <= number <= last]
    assert "continuing after generation" in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_watching_continues_with_another_database(start_collector: StartCollector, tmp_path: Path) -> None:
    """If the collector comes back with a new database, its tables in force are printed, with a message."""
    collector = start_collector()
    collector.call.apply(PLAN)
    feeder = Feeder(collector)
    feeder.push(collector, rounds=8)
    high = grown(collector, feeder, 3)[-1]
    with watch(collector) as process, ended(process):
        coming = generations(process)
        while next(coming) < high:
            pass
        collector.kill()
        later = time.monotonic() + CLEARLY_LATER_US / SECOND_US + 1
        fresh = start_collector(port=collector.port, http_port=collector.http_port, data_dir=tmp_path / "fresh")
        fresh.call.apply(PLAN)
        time.sleep(max(0.0, later - time.monotonic()))
        Feeder(fresh).push(fresh, rounds=8)
        # Tables of the old database may have been on their way.
        assert next(number for number in coming if number < high) >= 1
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        stderr = process.stderr.read().decode()
    assert "this is another database; starting with all tables in force" in stderr


def test_watching_after_an_unknown_generation_starts_over(routed: Collector) -> None:
    """A generation that was never issued is reported, and the tables in force come first, as over HTTP."""
    with watch(routed, "--after", "9999") as process, ended(process):
        assert next(generations(process)) in stored(routed)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert "this collector never issued generation 9999" in process.stderr.read().decode()


@pytest.fixture
def routed(start_collector: StartCollector) -> Collector:
    """A collector with usable tables of both regions. The first tables may be built between the pushes of the two."""
    collector = start_collector()
    collector.call.apply(PLAN)
    feeder = Feeder(collector)
    feeder.push(collector, rounds=8)
    states: set[str] = set()
    last = 1
    while states != {RouteState.OK}:
        last = grown(collector, feeder, last)[-1]
        tables = json.loads(ask(collector, "routes", "--output", "json").stdout)["rows"]
        states = {table["state"] for table in tables} if len(tables) == len(REGIONS) else set()
    return collector


def test_a_real_decision(routed: Collector, tmp_path: Path) -> None:
    """Table, history, explanation and export of a real decision agree, and the decision can be repeated."""
    shown = ask(routed, "routes", "--output", "json")
    assert shown.exit_code == 0, shown.output
    tables = json.loads(shown.stdout)["rows"]
    assert {(table["client_region"], table["route"]) for table in tables} == {(region, "chat") for region in REGIONS}
    explained = ask(routed, "explain", "us-east", "chat", "--output", "json")
    assert explained.exit_code == 0, explained.output
    assert json.loads(explained.stdout)["replays"] is True
    assert ask(routed, "routes", "history").exit_code == 0

    file = tmp_path / "litellm.yaml"
    written = ask(routed, "routes", "export", "--output", "litellm", "--region", "eu-central-1", "--file", str(file))
    assert written.exit_code == 0, written.output
    first = yaml.safe_load(file.read_text())["model_list"][0]
    assert (first["model_name"], first["model_info"]["id"]) == ("chat", "one/a")


def test_an_export_never_spoils_a_file(routed: Collector, tmp_path: Path) -> None:
    """Both files for Envoy are complete; a refusal leaves existing files unchanged and no partial file."""
    folder = tmp_path / "out"
    folder.mkdir()
    file = folder / "routes.json"
    assert (
        ask(routed, "routes", "export", "--output", "envoy", "--region", "us-east-2", "--file", str(file)).exit_code
        == 0
    )
    assert sorted(path.name for path in folder.iterdir()) == ["routes.clusters.json", "routes.json"]
    before = file.read_bytes()
    refused = ask(routed, "routes", "export", "--output", "envoy", "--region", "mars", "--file", str(file))
    assert (refused.exit_code, file.read_bytes()) == (2, before)
    exported = ask(routed, "routes", "export", "--output", "json", "--region", "us-east-2", "--file", "-")
    assert json.loads(exported.stdout)["client_region"] == "us-east-2"
    assert sorted(path.name for path in folder.iterdir()) == ["routes.clusters.json", "routes.json"]


def test_an_expired_table_is_not_exported(start_collector: StartCollector, tmp_path: Path) -> None:
    """If no table is usable, the exit code is 4 and an existing file stays."""
    collector = start_collector()
    collector.call.apply(PLAN)
    # Here an epoch is ten seconds, and a table is valid for six epochs.
    feeder = Feeder(collector)
    feeder.push(collector, rounds=8, ago_us=90_000_000)
    until = time.monotonic() + PATIENCE
    while not stored(collector) and time.monotonic() < until:
        time.sleep(0.1)
    file = tmp_path / "kept.json"
    file.write_text("mine")
    refused = ask(collector, "routes", "export", "--output", "json", "--region", "us-east-2", "--file", str(file))
    assert (refused.exit_code, file.read_text()) == (1, "mine")
    again = ask(
        collector, "routes", "export", "-o", "json", "--region", "us-east-2", "--file", str(file), "--exit-code"
    )
    assert (again.exit_code, file.read_text()) == (4, "mine")
    assert (ask(collector, "routes").exit_code, ask(collector, "routes", "--exit-code").exit_code) == (0, 4)
