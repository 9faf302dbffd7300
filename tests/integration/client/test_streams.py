"""Long-running commands against a real collector: following across a crash, exports and simulations."""

import csv
import json
import os
import select
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fixtures.collector import KEEP_A_MONTH, Collector, StartCollector
from isochrone_client.cli import cli
from isochrone_client.sample_export import columns
from isochrone_wire.model import SECOND_US, Batch, Outcome, RateLimit, Sample, TokenSource, Vantage
from testdata.preforked import Program

PLAN = """\
baseline: us-east-2
every: 1s
targets:
  - {model: a, provider: sim, base_url: http://h, price: {usd_per_m_output: 2.0}}
  - {model: b, provider: sim, base_url: http://h, price: {usd_per_m_output: 1.0}}
"""
# A message holds a quarter of them.
MANY = 8_000
PATIENCE = 60.0


def ask(collector: Collector, *arguments: str) -> Result:
    """Run the command against this collector."""
    environment = {"ISOCHRONE_COLLECTOR": collector.http_address}
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="isochrone")


def start(collector: Collector, *arguments: str) -> "subprocess.Popen[bytes]":
    """The command as a separate process, with pipes."""
    return Program[bytes](
        "isochrone_client",
        *arguments,
        env={**os.environ, "ISOCHRONE_COLLECTOR": collector.http_address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def lines_of(process: "subprocess.Popen[bytes]") -> Iterator[str]:
    """Yield the lines of stdout as they arrive."""
    assert process.stdout is not None
    pending = b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        assert ready, "no line came in time"
        piece = os.read(process.stdout.fileno(), 65_536)
        if not piece:
            return
        *lines, pending = (pending + piece).split(b"\n")
        yield from (line.decode() for line in lines)


def hours_ago(hours: float) -> int:
    return time.time_ns() // 1000 - int(hours * 3600) * SECOND_US


class Feeder:
    """A pusher of samples of target `a`, each with a different number as its TTFT."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.number = 0
        self.seq = 0
        self.call = collector.call

    def push(self, count: int = 1) -> None:
        """Store `count` new samples."""
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
    collector.call.apply(PLAN)
    feeder = Feeder(collector)
    feeder.push(3)
    process = start(collector, "samples", "--follow", "--limit", "2", "--output", "json")
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

    process.send_signal(signal.SIGINT)
    assert list(lines) == []
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert Counter(numbers) == Counter(range(1, feeder.number))
    assert [line.split(";")[-1].strip() for line in stderr.decode().splitlines()] == [
        "continuing when it is back",
        "isochrone: the collector is back",
    ]


@pytest.fixture(scope="module")
def recorded(shared_collector: Collector) -> Collector:
    """Eight thousand samples of two targets in two regions, over some hours; some have all fields set."""
    shared_collector.call.apply(PLAN)
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
    result = ask(recorded, "samples", "export", "--file", str(file))
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
    lines = ask(recorded, *options, "--output", "jsonl", "--file", "-").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    file = tmp_path / "b.csv"
    assert ask(recorded, *options, "--file", str(file)).exit_code == 0
    with file.open(newline="") as text:
        table = list(csv.DictReader(text))
    assert len(rows) == len(table) == MANY // 4
    assert [row["ttft_us"] for row in rows] == sorted(row["ttft_us"] for row in rows)
    assert [(row["round_at"], str(row["ttft_us"])) for row in rows] == [
        (row["round_at"], row["ttft_us"]) for row in table
    ]
    assert set(rows[0]) == {column.name for column in columns()}


def test_an_export_never_spoils_a_file(recorded: Collector, tmp_path: Path) -> None:
    """An existing file is not changed without --force, and a failure leaves no partial file."""
    file = tmp_path / "kept.csv"
    file.write_text("mine")
    refused = ask(recorded, "samples", "export", "--file", str(file))
    assert (refused.exit_code, file.read_text()) == (1, "mine")
    assert "--force" in refused.stderr
    nothing = ("samples", "export", "--window", "5m", "--file", str(tmp_path / "none.csv"))
    assert (ask(recorded, *nothing).exit_code, ask(recorded, *nothing, "--exit-code").exit_code) == (1, 4)
    assert ask(recorded, "samples", "export", "--force", "--file", str(file)).exit_code == 0
    assert file.read_text().startswith("target,vantage,region")
    assert ask(recorded, "samples", "export", "--file", str(tmp_path / "no" / "folder.csv")).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["kept.csv"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--output", "parquet", "--file", "-"], "does not go to standard output"),
        (["--output", "xls", "--file", "x"], "is not one of"),
        ([], "missing option '--file'"),
    ],
)
def test_impossible_exports_are_usage_errors(recorded: Collector, options: list[str], says: str) -> None:
    """Files that cannot be written are refused before any request."""
    result = ask(recorded, "samples", "export", *options)
    assert result.exit_code == 2
    assert says in result.stderr


def test_options_before_the_subcommand_are_refused(recorded: Collector) -> None:
    """An option that would have no effect is refused."""
    result = ask(recorded, "samples", "--region", "us-east-2", "export", "--file", "-")
    assert result.exit_code == 2
    assert "after 'export'" in result.stderr


def test_more_samples_than_a_message_holds_are_listed(recorded: Collector) -> None:
    """A list of several messages is complete, newest last."""
    rows = json.loads(ask(recorded, "samples", "--limit", "5000", "--output", "json").stdout)["rows"]
    assert [row["ttft_us"] for row in rows] == list(range(MANY - 5_000, MANY))


SIMULATED = ["--region", "us-east-2", "--policy", "static:b", "--policy", "race:2", "--policy", "fallback:1ms"]


def push_joint_rounds(collector: Collector) -> None:
    """Store 200 rounds in which two regions probed both targets at once."""
    collector.call.apply(PLAN)
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
    table = ask(collector, "simulate", *SIMULATED)
    assert table.exit_code == 0, table.stderr
    assert "what if: sim/a, sim/b" in table.stdout
    rows = json.loads(ask(collector, "simulate", *SIMULATED, "--output", "json").stdout)["rows"]
    assert [row["policy"] for row in rows] == ["static:sim/b", "race:2", "fallback:1"]
    assert len({row["rounds"] for row in rows}) == 1
    assert rows[1]["requests"] == 2 * rows[0]["requests"]
    alone = json.loads(ask(collector, "simulate", "--policy", "race:2", "--output", "json").stdout)["rows"]
    assert [row["policy"].partition(":")[0] for row in alone] == ["static", "race"] * 2
    assert rows[1]["ttft_p95_us"]["value"] <= 400 < rows[0]["ttft_p95_us"]["value"]


def test_what_takes_joint_rounds_is_not_replayed_without_them(recorded: Collector) -> None:
    """Members that are probed in different rounds have a static line, but no race and no fallback; the reason is in the
    note.
    """
    rows = json.loads(ask(recorded, "simulate", *SIMULATED, "--output", "json").stdout)["rows"]
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
    result = ask(recorded, "simulate", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
