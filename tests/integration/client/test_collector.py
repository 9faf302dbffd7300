"""The command against a real collector on a real database: tables, streams across a crash, exports and simulations."""

import csv
import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
import yaml

from fixtures.collector import KEEP_A_MONTH, Collector, StartCollector
from isochrone_client.sample_export import columns
from isochrone_client.window import now_at
from isochrone_common.route_consumer import CLEARLY_LATER_US
from isochrone_wire.codec import encode
from isochrone_wire.model import SECOND_US, Batch, Outcome, RateLimit, Sample, TokenSource, Vantage
from isochrone_wire.rounds import round_at
from isochrone_wire.routes import RouteState
from isochrone_wire.v1.fleet_pb2_grpc import FleetStub
from testdata.reading import PATIENCE, Process, lines_of, run, started, stopped

ONE_TARGET = """
baseline: us-east-2
every: 10s
providers:
  openai: {base_url: "https://api.openai.com/v1"}
targets:
  - {provider: openai, model: gpt-5-mini, price: {usd_per_m_input: 0.25, usd_per_m_output: 2.0}}
"""
EVERY_US = 10 * SECOND_US
ROUNDS = 70
MEDIAN_US = {"us-east-2": 320_000, "ap-southeast-1": 510_000}


def push(collector: Collector, target_id: int) -> None:
    """Samples of the last rounds from two regions, the second 190 ms slower."""
    newest_at = round_at(now_at(), target_id=target_id, every_us=EVERY_US)
    with grpc.insecure_channel(collector.address) as channel:
        for region, median_us in MEDIAN_US.items():
            samples = tuple(
                Sample(
                    target_id=target_id,
                    round_at=at,
                    outcome=Outcome.OK,
                    dispatched_at=at + 500,
                    ttft_us=ttft_us,
                    e2e_us=4 * ttft_us,
                    tokens_per_second=100.0,
                )
                for place in range(ROUNDS)
                for at, ttft_us in [(newest_at - place * EVERY_US, median_us + 1000 * (place % 7))]
            )
            batch = Batch(vantage=Vantage(name=f"{region}-a", region=region), epoch=1, seq=1, samples=samples)
            FleetStub(channel).Push(encode(batch), timeout=30)


def test_pushed_samples_appear_in_every_table(start_collector: StartCollector, tmp_path: Path) -> None:
    """A pushed sample appears in medians, decisions, ranks and rounds; unknown names and windows are usage errors."""
    collector = start_collector()
    collector.apply(ONE_TARGET, tmp_path)
    rows = json.loads(run(collector, "targets", "-o", "json").stdout)["rows"]
    push(collector, rows[0]["id"])

    diff = json.loads(run(collector, "diff", "--window", "1h", "-o", "json").stdout)["rows"]
    assert [(row["region"], row["decision"]) for row in diff] == [("ap-southeast-1", "slower")]
    assert diff[0]["shift_low"] <= 190_000 <= diff[0]["shift_high"]

    board = json.loads(run(collector, "leaderboard", "-o", "json").stdout)["rows"]
    assert {row["region"]: round(row["ttft_p50_us"]["value"], -4) for row in board} == MEDIAN_US

    seen = json.loads(run(collector, "samples", "--limit", "3", "--region", "us-east-2", "-o", "json").stdout)["rows"]
    assert [row["region"] for row in seen] == ["us-east-2"] * 3
    assert sorted(row["round_at"] for row in seen) == [row["round_at"] for row in seen]

    vantages = json.loads(run(collector, "vantages", "-o", "json").stdout)["rows"]
    assert {row["region"]: row["liveness"] for row in vantages} == dict.fromkeys(MEDIAN_US, "online")
    spend = json.loads(run(collector, "coverage", "--spend", "-o", "json").stdout)["rows"]
    assert {(row["vantage"], row["provider"]) for row in spend} == {(f"{region}-a", "openai") for region in MEDIAN_US}

    for command in ("diff", "leaderboard", "samples", "coverage", "targets"):
        result = run(collector, command)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "gpt-5-mini" in result.stdout
    for arguments in (
        ["diff", "--target", "nobody"],
        ["leaderboard", "--region", "mars"],
        ["samples", "--window", "99w"],
    ):
        result = run(collector, *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert len(result.stderr.splitlines()) == 2


TWO_TARGETS = """\
baseline: us-east-2
every: 1s
targets:
  - {model: a, provider: sim, base_url: http://h, price: {usd_per_m_output: 2.0}}
  - {model: b, provider: sim, base_url: http://h, price: {usd_per_m_output: 1.0}}
"""
# A message holds a quarter of them.
MANY = 8_000


def hours_ago(hours: float) -> int:
    return time.time_ns() // 1000 - int(hours * 3600) * SECOND_US


class SampleFeeder:
    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.number = 0
        self.seq = 0
        self.call = collector.call

    def push(self, count: int = 1) -> None:
        self.seq += 1
        target_id = self.call.targets().targets[0].id
        now_at = hours_ago(0)
        samples = tuple(
            Sample(
                target_id=target_id,
                round_at=now_at + place,
                outcome=Outcome.OK,
                dispatched_at=now_at,
                ttft_us=self.number + place,
            )
            for place in range(count)
        )
        self.number += count
        batch = Batch(vantage=Vantage(name="us-1", region="us-east-2"), epoch=3, seq=self.seq, samples=samples)
        assert self.call.push(batch).stored == count


def test_following_survives_a_crash_of_the_collector(start_collector: StartCollector) -> None:
    """Across a SIGKILL and a restart every sample is printed once: those before, during and after the outage."""
    collector = start_collector(more=KEEP_A_MONTH)
    collector.call.apply(TWO_TARGETS)
    feeder = SampleFeeder(collector)
    feeder.push(3)
    with started(collector, "samples", "--follow", "--limit", "2", "--output", "json") as process:
        lines = lines_of(process)
        numbers = [json.loads(next(lines))["ttft_us"] for _ in range(2)]
        assert numbers == [1, 2]
        feeder.push(2)
        numbers += [json.loads(next(lines))["ttft_us"] for _ in range(2)]

        # Committed, and killed before the reader has received all of it.
        feeder.push(700)
        collector.kill()
        again = start_collector(port=collector.port, http_port=collector.http_port, database_url=collector.database_url)
        feeder.call = again.call
        feeder.push(5)
        while len(numbers) < feeder.number - 1:
            numbers.append(json.loads(next(lines))["ttft_us"])
        feeder.push()
        numbers.append(json.loads(next(lines))["ttft_us"])
        stdout, stderr = stopped(process)
    assert stdout == ""
    assert Counter(numbers) == Counter(range(1, feeder.number))
    assert [line.split(";")[-1].strip() for line in stderr.splitlines()] == [
        "continuing when it is back",
        "isochrone: the collector is back",
    ]


@pytest.fixture(scope="module")
def recorded(shared_collector: Collector) -> Collector:
    """Eight thousand samples of two targets in two regions, over some hours; some have all fields set."""
    shared_collector.call.apply(TWO_TARGETS)
    targets = shared_collector.call.targets().targets
    start_at = hours_ago(3)
    full: dict[str, Any] = {
        "tcp_us": 7,
        "tls_us": 11,
        "token_source": TokenSource.USAGE,
        "ratelimit": RateLimit(remaining_tokens=5),
        "error": 'a "quoted", line\nbroken',
        "cost_usd": 0.25,
    }
    for seq in range(10):
        samples = tuple(
            Sample(
                target_id=targets[place % 2].id,
                round_at=start_at + place * 500_000,
                outcome=Outcome.OK,
                dispatched_at=start_at + place * 500_000 + 123,
                ttft_us=place,
                tokens_per_second=(place + 1) / 3,
                **(full if place % 100 == 0 else {}),
            )
            for place in range(seq * 800, seq * 800 + 800)
        )
        region = ("us-east-2", "ap-southeast-1")[seq % 2]
        batch = Batch(vantage=Vantage(name=f"{region}-x", region=region), epoch=1, seq=seq + 1, samples=samples)
        assert shared_collector.call.push(batch).stored == 800
    return shared_collector


def test_parquet_has_every_sample_with_its_types(recorded: Collector, tmp_path: Path) -> None:
    """The file has the stored samples, as numbers, strings and instants."""
    import pyarrow as pa
    from pyarrow import parquet

    file = tmp_path / "samples.parquet"
    result = run(recorded, "samples", "export", "--file", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"{MANY} samples exported to {file}" in result.stderr
    table = parquet.read_table(file)
    assert table.column_names == [column.name for column in columns()]
    assert table["ttft_us"].to_pylist() == list(range(MANY))
    assert table.schema.field("round_at").type == pa.timestamp("us", tz="UTC")
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["target"], first["region"], first["outcome"]) == ("sim/a", "us-east-2", "ok")
    assert (first["connect_us"], first["ttft_cold_us"], first["cost_usd"]) == (18, 18, 0.25)
    assert (first["token_source"], first["ratelimit"]["remaining_tokens"], first["quality"]) == ("usage", 5, [])
    assert first["error"] == 'a "quoted", line\nbroken'
    assert (first["dispatched_at"] - first["round_at"]).microseconds == 123
    assert abs((first["received_at"] - datetime.now(UTC)).total_seconds()) < 3600
    assert table.slice(1, 1).to_pylist()[0]["ratelimit"] is None
    assert parquet.read_metadata(file).metadata[b"isochrone.schema"] == b"isochrone.samples/1"


def test_csv_and_jsonl_have_the_same_samples(recorded: Collector, tmp_path: Path) -> None:
    """Each format has a line per sample, oldest round first, with the same names; `-` is standard output."""
    options = ["samples", "export", "--region", "us-east-2", "--target", "b"]
    lines = run(recorded, *options, "--output", "jsonl", "--file", "-").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    file = tmp_path / "b.csv"
    assert run(recorded, *options, "--file", str(file)).exit_code == 0
    with file.open(newline="") as text:
        table = list(csv.DictReader(text))
    assert len(rows) == len(table) == MANY // 4
    assert [row["ttft_us"] for row in rows] == sorted(row["ttft_us"] for row in rows)
    assert [(row["round_at"], str(row["ttft_us"])) for row in rows] == [
        (row["round_at"], row["ttft_us"]) for row in table
    ]
    assert set(rows[0]) == {column.name for column in columns()}


def test_an_export_of_samples_never_spoils_a_file(recorded: Collector, tmp_path: Path) -> None:
    """An existing file is not changed without --force, and a failure leaves no partial file."""
    file = tmp_path / "kept.csv"
    file.write_text("mine")
    refused = run(recorded, "samples", "export", "--file", str(file))
    assert (refused.exit_code, file.read_text()) == (1, "mine")
    assert "--force" in refused.stderr
    nothing = ("samples", "export", "--window", "5m", "--file", str(tmp_path / "none.csv"))
    assert (run(recorded, *nothing).exit_code, run(recorded, *nothing, "--exit-code").exit_code) == (1, 4)
    assert run(recorded, "samples", "export", "--force", "--file", str(file)).exit_code == 0
    assert file.read_text().startswith("target,vantage,region")
    assert run(recorded, "samples", "export", "--file", str(tmp_path / "no" / "folder.csv")).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["kept.csv"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--output", "parquet", "--file", "-"], "does not go to standard output"),
        (["--output", "xls", "--file", "x"], "unknown value 'xls'; "),
        ([], "missing option '--file'"),
    ],
)
def test_impossible_exports_are_usage_errors(recorded: Collector, options: list[str], says: str) -> None:
    """Files that cannot be written are refused before any request."""
    result = run(recorded, "samples", "export", *options)
    assert result.exit_code == 2
    assert says in result.stderr


def test_options_before_the_subcommand_are_refused(recorded: Collector) -> None:
    """An option that would have no effect is refused."""
    result = run(recorded, "samples", "--region", "us-east-2", "export", "--file", "-")
    assert result.exit_code == 2
    assert "after 'export'" in result.stderr


def test_more_samples_than_a_message_holds_are_listed(recorded: Collector) -> None:
    """A list of several messages is complete, newest last."""
    rows = json.loads(run(recorded, "samples", "--limit", "5000", "--output", "json").stdout)["rows"]
    assert [row["ttft_us"] for row in rows] == list(range(MANY - 5_000, MANY))


SIMULATED = ["--region", "us-east-2", "--policy", "static:b", "--policy", "race:2", "--policy", "fallback:1ms"]


def push_joint_rounds(collector: Collector) -> None:
    """Store 200 rounds in which two regions probed both targets at once."""
    collector.call.apply(TWO_TARGETS)
    one, other = collector.call.targets().targets
    start_at = hours_ago(1)
    for region in ("us-east-2", "ap-southeast-1"):
        samples = tuple(
            Sample(
                target_id=target.id, round_at=at, outcome=Outcome.OK, dispatched_at=at, ttft_us=ttft_us, cost_usd=0.25
            )
            for place in range(200)
            for at in [start_at + place * SECOND_US]
            for target, ttft_us in ((one, 300 + place), (other, 500 - place))
        )
        batch = Batch(vantage=Vantage(name=f"{region}-x", region=region), epoch=1, seq=1, samples=samples)
        assert collector.call.push(batch).stored == len(samples)


def test_a_simulation_of_what_was_recorded(start_collector: StartCollector) -> None:
    """`simulate` replays the rounds of a region under the given policies, compared with the static one."""
    collector = start_collector(more=KEEP_A_MONTH)
    push_joint_rounds(collector)
    table = run(collector, "simulate", *SIMULATED)
    assert table.exit_code == 0, table.stderr
    assert "what if: sim/a, sim/b" in table.stdout
    rows = json.loads(run(collector, "simulate", *SIMULATED, "--output", "json").stdout)["rows"]
    assert [row["policy"] for row in rows] == ["static:sim/b", "race:2", "fallback:1"]
    assert len({row["rounds"] for row in rows}) == 1
    assert rows[1]["requests"] == 2 * rows[0]["requests"]
    alone = json.loads(run(collector, "simulate", "--policy", "race:2", "--output", "json").stdout)["rows"]
    assert [row["policy"].partition(":")[0] for row in alone] == ["static", "race"] * 2
    assert rows[1]["ttft_p95_us"]["value"] <= 400 < rows[0]["ttft_p95_us"]["value"]


def test_what_takes_joint_rounds_is_not_replayed_without_them(recorded: Collector) -> None:
    """Members of different rounds have a static line, but no race and no fallback, with the reason in the note."""
    rows = json.loads(run(recorded, "simulate", *SIMULATED, "--output", "json").stdout)["rows"]
    assert [(row["policy"], row["rounds"] > 0) for row in rows] == [
        ("static:sim/b", True),
        ("race:2", False),
        ("fallback:1", False),
    ]
    assert all("make them members of one route" in row["note"] for row in rows[1:])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--policy", "rase:2"], "did you mean 'race'"),
        (["--policy", "race:3"], "of the 2 members"),
        (["--policy", "static:c"], "unknown member 'c'"),
        (["--target", "sim/a"], "at least two interchangeable targets"),
    ],
)
def test_what_cannot_be_simulated(recorded: Collector, options: list[str], says: str) -> None:
    """Invalid policies and too few members are usage errors with the collector's sentence."""
    result = run(recorded, "simulate", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


ROUTES = """\
baseline: us-east-2
every: 1s
targets:
  - {model: a, provider: one, base_url: http://h/v1, credential: one}
  - {model: b, provider: two, base_url: http://h/v1}
routes:
  - {name: chat, members: [one/a, two/b], slo: {class: chat}, static_order: [two/b]}
"""
REGIONS = ("us-east-2", "eu-central-1")


class RoundFeeder:
    """A pusher of rounds of both targets from both regions; `b` takes twice as long as `a`."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.seq = 0
        self.ids = {target.name: target.id for target in collector.call.targets().targets}

    def push(self, collector: Collector, *, rounds: int, ago_us: int = 0) -> None:
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


WATCH = ("routes", "watch", "--all", "--output", "json")


def generations(process: Process) -> Iterator[int]:
    """Yield the printed generations as they arrive."""
    return (json.loads(line)["generation"] for line in lines_of(process))


def stored(collector: Collector) -> list[int]:
    """All generations, in order."""
    with psycopg.connect(collector.database_url) as connection:
        return [row[0] for row in connection.execute("SELECT generation FROM route_table ORDER BY generation")]


def grown(collector: Collector, feeder: RoundFeeder, beyond: int) -> list[int]:
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
    collector.call.apply(ROUTES)
    feeder = RoundFeeder(collector)
    feeder.push(collector, rounds=8)
    before = grown(collector, feeder, 1)
    with started(collector, *WATCH) as process:
        coming = generations(process)
        printed = [next(coming)]
        collector.kill()
        again = start_collector(port=collector.port, http_port=collector.http_port, database_url=collector.database_url)
        middle = grown(again, feeder, before[-1])
        last = grown(again, feeder, middle[-1])[-1]
        while printed[-1] < last:
            printed.append(next(coming))
        stderr = stopped(process)[1]
    every = stored(again)
    assert printed == [number for number in every if printed[0] <= number <= last]
    assert "continuing after generation" in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_watching_continues_with_another_database(start_collector: StartCollector, tmp_path: Path) -> None:
    """If the collector comes back with a new database, its tables in force are printed, with a message."""
    collector = start_collector()
    collector.call.apply(ROUTES)
    feeder = RoundFeeder(collector)
    feeder.push(collector, rounds=8)
    high = grown(collector, feeder, 3)[-1]
    with started(collector, *WATCH) as process:
        coming = generations(process)
        while next(coming) < high:
            pass
        collector.kill()
        later = time.monotonic() + CLEARLY_LATER_US / SECOND_US + 1
        fresh = start_collector(port=collector.port, http_port=collector.http_port, data_dir=tmp_path / "fresh")
        fresh.call.apply(ROUTES)
        time.sleep(max(0.0, later - time.monotonic()))
        RoundFeeder(fresh).push(fresh, rounds=8)
        # Tables of the old database may have been on their way.
        assert next(number for number in coming if number < high) >= 1
        stderr = stopped(process)[1]
    assert "this is another database; starting with all tables in force" in stderr


@pytest.fixture
def routed(start_collector: StartCollector) -> Collector:
    """A collector with usable tables of both regions. The first tables may be built between the pushes of the two."""
    collector = start_collector()
    collector.call.apply(ROUTES)
    feeder = RoundFeeder(collector)
    feeder.push(collector, rounds=8)
    states: set[str] = set()
    last = 1
    while states != {RouteState.OK}:
        last = grown(collector, feeder, last)[-1]
        tables = json.loads(run(collector, "routes", "--output", "json").stdout)["rows"]
        states = {table["state"] for table in tables} if len(tables) == len(REGIONS) else set()
    return collector


def test_a_real_decision(routed: Collector, tmp_path: Path) -> None:
    """Table, history, explanation and export agree and can be repeated; a refusal leaves Envoy's files unchanged."""
    shown = run(routed, "routes", "--output", "json")
    assert shown.exit_code == 0, shown.output
    tables = json.loads(shown.stdout)["rows"]
    assert {(table["client_region"], table["route"]) for table in tables} == {(region, "chat") for region in REGIONS}
    explained = run(routed, "explain", "us-east", "chat", "--output", "json")
    assert explained.exit_code == 0, explained.output
    assert json.loads(explained.stdout)["replays"] is True
    assert run(routed, "routes", "history").exit_code == 0

    file = tmp_path / "litellm.yaml"
    written = run(routed, "routes", "export", "--output", "litellm", "--region", "eu-central-1", "--file", str(file))
    assert written.exit_code == 0, written.output
    first = yaml.safe_load(file.read_text())["model_list"][0]
    assert (first["model_name"], first["model_info"]["id"]) == ("chat", "one/a")

    folder = tmp_path / "out"
    folder.mkdir()
    file = folder / "routes.json"
    assert (
        run(routed, "routes", "export", "--output", "envoy", "--region", "us-east-2", "--file", str(file)).exit_code
        == 0
    )
    assert sorted(path.name for path in folder.iterdir()) == ["routes.clusters.json", "routes.json"]
    before = file.read_bytes()
    refused = run(routed, "routes", "export", "--output", "envoy", "--region", "mars", "--file", str(file))
    assert (refused.exit_code, file.read_bytes()) == (2, before)
    exported = run(routed, "routes", "export", "--output", "json", "--region", "us-east-2", "--file", "-")
    assert json.loads(exported.stdout)["client_region"] == "us-east-2"
    assert sorted(path.name for path in folder.iterdir()) == ["routes.clusters.json", "routes.json"]


def test_an_expired_table_is_not_exported(start_collector: StartCollector, tmp_path: Path) -> None:
    """If no table is usable, the exit code is 4 and an existing file stays."""
    collector = start_collector()
    collector.call.apply(ROUTES)
    # Here an epoch is ten seconds, and a table is valid for six epochs.
    feeder = RoundFeeder(collector)
    feeder.push(collector, rounds=8, ago_us=90_000_000)
    until = time.monotonic() + PATIENCE
    while not stored(collector) and time.monotonic() < until:
        time.sleep(0.1)
    file = tmp_path / "kept.json"
    file.write_text("mine")
    refused = run(collector, "routes", "export", "--output", "json", "--region", "us-east-2", "--file", str(file))
    assert (refused.exit_code, file.read_text()) == (1, "mine")
    again = run(
        collector, "routes", "export", "-o", "json", "--region", "us-east-2", "--file", str(file), "--exit-code"
    )
    assert (again.exit_code, file.read_text()) == (4, "mine")
    assert (run(collector, "routes").exit_code, run(collector, "routes", "--exit-code").exit_code) == (0, 4)
