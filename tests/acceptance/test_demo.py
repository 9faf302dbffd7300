"""`isochrone demo` from start to end against a world with known ground truth, and every example of the help with it."""

import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from fix_network import unavailable_reason
from isochrone_client.cli import COMMANDS, cli
from isochrone_client.demo.scenario import BASELINE, EPISODE, SUGGESTIONS, VANTAGES
from testdata.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 56
RESOLUTION_US = 1500
PUBLISHED_MS = {"deepseek-v4-flash": -30, "qwen3-32b": -40, "glm-5": -80, "kimi-k2.5": -120}
# A busy machine is late with a packet, and without privileges the delay line has to wait for a core.
LATE_MS = 15
ROUND_TRIP_MS = {vantage.region: vantage.round_trip_ms for vantage in VANTAGES}
# In a user namespace of its own, so that the limit is that of these processes.
NO_NETWORK_NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "sh", "-c"),
    *('echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"', "sh"),
)
# Commands that do not query a collector, and options that run until Ctrl-C.
WITHOUT_COLLECTOR = ("join", "context", "demo", "completion")
ENDLESS = {"--follow", "-f", "watch"}

pytestmark = pytest.mark.slow


@dataclass(slots=True, repr=False)
class Demo:
    """A running demo, and its output on stderr so far."""

    process: "subprocess.Popen[str]"
    folder: Path
    collector: str = ""
    lines: list[str] = field(default_factory=list)
    stdout: str = ""

    @property
    def stderr(self) -> str:
        """The output on stderr so far."""
        return "".join(self.lines)

    @property
    def has_network(self) -> bool:
        """True if the regions are a round trip away from the providers."""
        return "round trips to the providers: " in self.stderr

    def listen(self) -> None:
        """Collect the output on stderr until it ends."""
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def wait_for(self, pattern: str, seconds: float) -> str:
        """Wait until the pattern appears on stderr, and return its group."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if found := re.search(pattern, self.stderr):
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} on stderr:\n{self.stderr}")


def command(folder: Path) -> list[str]:
    """The command line of a demo in a folder."""
    return [sys.executable, "-m", "isochrone_client", "demo", "--folder", str(folder)]


@contextmanager
def start_demo(folder: Path, within: Sequence[str] = ()) -> Iterator[Demo]:
    """Run a demo in a folder for the block, from the moment its collector serves; `within` are words before it."""
    line = [*within, *command(folder)]
    # The width of the README. The readline library, which pytest may load, sets another one for child processes.
    environment = {**os.environ, "COLUMNS": "100"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        demo_run = Demo(process=process, folder=folder)
        reader = threading.Thread(target=demo_run.listen)
        reader.start()
        try:
            demo_run.collector = demo_run.wait_for(r"a collector at (\S+)", 90)
            yield demo_run
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            reader.join(10)
    # The logs of a demo that failed stay.
    assert folder.exists() is (process.returncode == 1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A demo that has probed for a while and continues."""
    with start_demo(tmp_path_factory.mktemp("demo") / "place") as demo_run:
        demo_run.wait_for(rf"\n· ({'|'.join(str(SECONDS + more) for more in range(20))}) s ·", 120)
        yield demo_run


def processes(folder: Path) -> list[tuple[int, str]]:
    """The process ids and command lines of the processes in a folder."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    found = [line.split(maxsplit=1) for line in listed.splitlines() if f"{folder}/" in line]
    return [(int(pid), words) for pid, words in found]


def ask(running: Demo, *arguments: str) -> Result:
    """Run `isochrone` against the demo's collector."""
    return CliRunner().invoke(cli, arguments, env={"ISOCHRONE_COLLECTOR": running.collector}, prog_name="isochrone")


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and its subcommands with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            part = command.get_command(context, below)
            assert part is not None
            yield from commands(f"{name} {below}", part)


def examples(*, endless: bool = False) -> list[str]:
    """All example lines in the help of commands that query a collector; with `endless` those that run until Ctrl-C."""
    reading = [name for name in COMMANDS if name not in WITHOUT_COLLECTOR]
    every = [pair for name in reading for pair in commands(name, COMMANDS[name].load())]
    helps = [CliRunner().invoke(cli, [*name.split(), "--help"], prog_name="isochrone").stdout for name, _ in every]
    sections = [re.split(r"^ *Examples?:$", text, flags=re.MULTILINE)[-1] for text in helps]
    lines = [line for text in sections for line in re.findall(r"^ +(isochrone .+)$", text, re.MULTILINE)]
    return sorted({line for line in lines if endless or not ENDLESS & set(shlex.split(line))})


def test_the_suggestions_are_examples(running: Demo) -> None:
    """The suggestions are printed while the demo runs, and each is an example of the help, word for word."""
    assert set(SUGGESTIONS) - set(examples(endless=True)) == set()
    for line in SUGGESTIONS:
        assert line in running.stderr


def test_a_second_demo_in_the_folder_is_refused(running: Demo) -> None:
    """A second demo in the same folder is refused with an error and does not disturb the first one."""
    before = processes(running.folder)
    assert before
    refused = subprocess.run(command(running.folder), capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert f"a demo is running in {running.folder}\nhint: " in refused.stderr
    assert processes(running.folder) == before
    assert ask(running, "leaderboard").exit_code == 0


@pytest.mark.parametrize("line", examples())
def test_every_example_works(running: Demo, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example of the help, run beside the demo, gets an answer or the reason why there is none yet."""
    if "parquet" in line:
        pytest.importorskip("pyarrow", reason="Parquet takes the extra isochrone[export]")
    monkeypatch.chdir(tmp_path)
    result = ask(running, *shlex.split(line)[1:])
    # An export without data fails; every other answer is one, with a note where it is undecided.
    assert result.exit_code in ((0, 1) if " export " in line else (0,)), result.output
    assert "Traceback" not in result.output
    if result.exit_code == 1 or result.stderr.startswith("note: "):
        assert "\nhint: " in result.stderr


@pytest.fixture(scope="module")
def explained(running: Demo) -> dict[str, Any]:
    """The JSON of `--explain` for kimi-k2.5 in Singapore."""
    result = ask(running, "diff", "--baseline", "us-east", "--explain", "kimi-k2.5", "--output", "json")
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return next(row for row in rows if row["region"] == "ap-southeast-1")


def test_explain_names_the_difference(explained: dict[str, Any]) -> None:
    """The shift is that of the world, within its interval and the resolution of the measurement, and it is decided."""
    true_us = 1000 * PUBLISHED_MS["kimi-k2.5"]
    assert (explained["target"], explained["baseline"]) == ("moonshot/kimi-k2.5", "us-east-2")
    assert explained["decision"] == "faster"
    # A busy machine makes the interval wider, but not wrong.
    assert explained["shift_low"] - RESOLUTION_US <= true_us <= explained["shift_high"] + RESOLUTION_US
    assert explained["shift_high"] - explained["shift_low"] < abs(true_us) / 2


def test_explain_names_the_origin(running: Demo, explained: dict[str, Any]) -> None:
    """The connection and the round trip are shorter by the difference of the round trips, and the server by the rest of
    the published difference. Where the demo has no network, all of the difference comes from the server.
    """
    network_us = 1000 * (ROUND_TRIP_MS["ap-southeast-1"] - ROUND_TRIP_MS[BASELINE]) * running.has_network
    server_us = 1000 * PUBLISHED_MS["kimi-k2.5"] - network_us
    parts = {part["name"]: part for part in explained["parts"]}
    assert {"tcp", "rtt", "server"} <= parts.keys()
    for name in parts.keys() - {"edge", "provider"}:
        true_us = {"tcp": network_us, "rtt": network_us, "server": server_us}.get(name, 0)
        assert parts[name]["low"] - 3000 <= true_us <= parts[name]["high"] + 3000, name
    if "edge" in parts:
        assert abs(parts["edge"]["shift"] + parts["provider"]["shift"] - parts["server"]["shift"]) < 3000
    lines = " ".join(explained["story"])
    assert "shorter from ap-southeast-1 than from us-east-2" in lines
    from_server = "all of it comes from the server|9[0-9] % server|the part of the server is larger"
    assert re.search(r"\d\d % network, \d\d % server" if running.has_network else from_server, lines)


def test_regions_are_a_round_trip_away(running: Demo) -> None:
    """Where namespaces are allowed, the kernel reports the scenario's round trips, and no connection takes less than
    one; elsewhere the demo states in one line why there are none.
    """
    reason = unavailable_reason()
    stated = re.search(
        r"^· the distance of the regions is simulated in the providers only: (.+)$", running.stderr, re.MULTILINE
    )
    assert (stated and stated[1]) == reason
    if reason is not None:
        pytest.skip(reason)
    for metric in ("rtt", "connect"):
        result = ask(running, "diff", "--baseline", BASELINE, "--metric", metric, "--output", "json")
        assert result.exit_code == 0, result.output
        for row in json.loads(result.stdout)["rows"]:
            for region, median_us in ((BASELINE, row["baseline_median"]), (row["region"], row["region_median"])):
                late_ms = median_us / 1000 - ROUND_TRIP_MS[region]
                # On a busy machine an agent notices late that it is connected.
                allowed_ms = LATE_MS if metric == "rtt" else math.inf
                assert 0 <= late_ms <= allowed_ms, (metric, row["target"], region, median_us)


def test_simulate_compares_policies(running: Demo) -> None:
    """Racing two members of a route is no slower than the better one alone, on the same rounds, and costs more
    requests.
    """
    line = "simulate --region us-east-2 --target 'kimi*' --target '*v4-pro' --policy race:2 --policy static"
    result = ask(running, *shlex.split(line), "--output", "json")
    assert result.exit_code == 0, result.output
    rows = {row["policy"]: row for row in json.loads(result.stdout)["rows"]}
    race, static = (next(row for name, row in rows.items() if name.startswith(kind)) for kind in ("race", "static"))
    assert race["rounds"] == static["rounds"] >= 3
    assert race["ttft_p50_us"]["value"] <= static["ttft_p50_us"]["value"]
    assert race["requests"] > static["requests"] >= static["rounds"]


def test_one_suggested_policy_wins_and_one_loses(running: Demo) -> None:
    """Compared with the first of the suggested policies, the second is faster from every region, the third slower."""
    [line] = [suggestion for suggestion in SUGGESTIONS if suggestion.startswith("isochrone simulate")]
    result = ask(running, *shlex.split(line)[1:], "--output", "json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert {row["region"] for row in rows} == {vantage.region for vantage in VANTAGES}
    for vantage in VANTAGES:
        own = [row["ttft_p50_us"]["value"] for row in rows if row["region"] == vantage.region]
        reference, winner, loser = own
        assert winner < 0.8 * reference < reference < 1.5 * reference < loser, (vantage, own)


def regions_switched(running: Demo, route: str) -> set[str]:
    """The regions in which the route has switched away from the slow provider."""
    result = ask(running, "routes", "history", "--route", route, "--window", "10m", "--output", "json")
    rows = json.loads(result.stdout)["rows"]
    switches = [row for row in rows if row["change"] in ("soft", "fast", "hard")]
    return {row["client_region"] for row in switches if row["sentence"].startswith(f"{EPISODE.provider}/")}


def test_a_route_switches_only_where_its_provider_got_slower(running: Demo) -> None:
    """The demo reports that the route `chat` switches in the region where its first choice is slow; the other regions
    keep it.
    """
    running.wait_for(rf"the route chat switches in ({EPISODE.region}): {EPISODE.provider}/", 170)
    assert regions_switched(running, "chat") == {EPISODE.region}
    result = ask(running, "routes", "--route", "chat", "--output", "json")
    assert result.exit_code == 0, result.output
    tables = {table["client_region"]: table["entries"] for table in json.loads(result.stdout)["rows"]}
    for region, entries in tables.items():
        kept = entries[0]["provider"] == EPISODE.provider
        assert kept == (region != EPISODE.region), (region, entries)


@pytest.fixture(scope="module")
def demo(running: Demo) -> Demo:
    """The same demo after Ctrl-C, with its results; tests that query it have to come before."""
    running.process.send_signal(signal.SIGINT)
    assert running.process.stdout is not None
    running.stdout = running.process.stdout.read()
    running.process.wait(60)
    return running


def table_after(text: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table that follows `heading`, by their first cell."""
    lines = text[text.index(heading) :].splitlines()[3:]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    rows = rows[: next((n for n, row in enumerate(rows) if row == [""]), len(rows))]
    return {row[0]: row[1:] for row in rows}


def test_it_ends_by_itself_with_its_tables(demo: Demo) -> None:
    """It exits with 0 and prints a leaderboard per region and the differentials of each region."""
    assert demo.process.returncode == 0, demo.stderr
    for region in ("us-east-2", "ap-southeast-1", "eu-central-1"):
        assert f"from {region}" in demo.stdout
    assert "ap-southeast-1 against us-east-2" in demo.stdout
    assert "eu-central-1 against us-east-2" in demo.stdout
    assert max(map(len, demo.stdout.splitlines())) <= 100


@pytest.mark.parametrize("model", PUBLISHED_MS)
def test_published_differences_come_out_of_the_samples(demo: Demo, model: str) -> None:
    """The interval of Singapore against US East has the published figure that the world was built from."""
    true_ms, _, interval, *_ = table_after(demo.stdout, "ap-southeast-1 against the baseline, ttft")[model]
    low_ms, high_ms = (float(bound) for bound in interval.split(" … "))
    assert float(true_ms) == PUBLISHED_MS[model]
    assert low_ms - RESOLUTION_US / 1000 <= PUBLISHED_MS[model] <= high_ms + RESOLUTION_US / 1000
    assert high_ms - low_ms < abs(PUBLISHED_MS[model])


def test_it_reports_its_progress(demo: Demo) -> None:
    """While it runs it reports its steps and the number of samples on stderr, and a few tables on stdout."""
    assert re.search(r"\n· \d+ s · \d+ samples, 0 failed\n", demo.stderr)
    assert 2 <= demo.stdout.count("last 60 s, in ms") <= 8
    # On a busy machine the first table has more rounds.
    assert re.search(r"warming up [1-6]/6|±\d", demo.stdout)
    assert "Traceback" not in demo.stderr


def test_the_readme_shows_what_it_prints(demo: Demo) -> None:
    """Every heading line of the demo's output in the README is a line of the real output."""
    if not demo.has_network:
        pytest.skip("the README shows a demo with network namespaces")
    shown = (ROOT / "README.md").read_text().split("```text")[1].split("```")[0]
    headings = [
        line for line in shown.splitlines() if line.startswith(("model ", "target ", "ap-southeast-1", "ground truth"))
    ]
    assert len(headings) >= 3

    def squeezed(text: str) -> set[str]:
        return {" ".join(line.split()) for line in text.splitlines()}

    # A column that this run's values left no room for is named below the table.
    [columns] = [line for line in headings if line.startswith("target ")]
    assert set(columns.split()) <= {word.strip(",") for word in demo.stdout.split()}
    assert {" ".join(line.split()) for line in headings if line != columns} <= squeezed(demo.stdout)


def test_nothing_remains_running(demo: Demo) -> None:
    """No process of the demo outlives it."""
    assert processes(demo.folder) == []


def test_a_demo_whose_collector_is_killed(demo: Demo, tmp_path: Path) -> None:
    """Where the kernel refuses network namespaces, the demo states it and finds the same differences on loopback. If
    its collector is killed, it ends with an error, and stops the PostgreSQL too.
    """
    assert demo.process.poll() is not None  # two demos at once would slow each other down
    with start_demo(tmp_path / "place", within=NO_NETWORK_NAMESPACES if demo.has_network else ()) as demo_run:
        eventually(120, lambda: PUBLISHED_MS.keys() <= decided(demo_run).keys(), "the published differences", every=2)
        for model, (low_ms, high_ms) in decided(demo_run).items():
            # On a busy machine the interval is wider.
            assert low_ms - 3 <= PUBLISHED_MS.get(model, low_ms) <= high_ms + 3, model
        [collector] = [pid for pid, words in processes(demo_run.folder) if "isochrone_collector serve" in words]
        assert [words for _, words in processes(demo_run.folder) if "/postgres -D" in words]
        os.kill(collector, signal.SIGKILL)
        assert demo_run.process.wait(60) == 1
        assert processes(demo_run.folder) == []
    assert not demo_run.has_network
    assert "the distance of the regions is simulated in the providers only: " in demo_run.stderr
    assert "collector ended with exit code -9" in demo_run.stderr
    assert f"logs: {demo_run.folder / 'logs'}, until the next demo" in demo_run.stderr
    assert (demo_run.folder / "logs" / "collector.log").exists()


def decided(running: Demo) -> dict[str, tuple[float, float]]:
    """The intervals, in milliseconds, of the decided differences of Singapore against US East, by model."""
    question = ["diff", "--baseline", BASELINE, "--against", "ap-southeast-1", "--output", "json"]
    rows = json.loads(ask(running, *question).stdout or '{"rows": []}')["rows"]
    sure = [row for row in rows if row["decision"] in ("faster", "slower")]
    return {row["target"].partition("/")[2]: (row["shift_low"] / 1000, row["shift_high"] / 1000) for row in sure}
