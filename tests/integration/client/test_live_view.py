"""`isochrone watch`: on pseudo-terminals against a collector with pushed rounds, and as snapshots on pipes."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fixtures.collector import Collector
from fixtures.fake_collector import FakeCollector
from isochrone_client.cli import cli
from isochrone_client.window import now_at
from testdata.preforked import Program
from testdata.pseudo_terminal import CTRL_C, PseudoTerminal
from testdata.pushed_rounds import FIRST, PLAN, SECOND, SG, THIRD, US, Fleet, rounds_until
from testdata.waiting import eventually

SECONDS = 30
COMMAND = [sys.executable, "-m", "isochrone_client", "watch"]
ROUNDS = 30


def slower_in_singapore(target: str, region: str) -> int | None:
    usual = {FIRST: 200_000, SECOND: 300_000, THIRD: 400_000}[target]
    return usual + 150_000 * ((target, region) == (SECOND, SG))


@pytest.fixture(scope="module")
def measured(shared_collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Collector:
    """A collector with half an hour of rounds of three targets from two regions."""
    shared_collector.apply(PLAN, tmp_path_factory.mktemp("plan"))
    targets = {target.name: target.id for target in shared_collector.call.targets().targets}
    Fleet(targets).push_rounds(shared_collector.call, rounds_until(now_at(), ROUNDS), slower_in_singapore)
    return shared_collector


def on_terminal(address: str, *options: str, columns: int = 80, lines: int = 24) -> PseudoTerminal:
    command = [*COMMAND, "--collector", address, "--every", "1", *options]
    return PseudoTerminal(command, columns=columns, lines=lines)


def row(text: str, target: str) -> list[str]:
    return next((line.replace("▸", " ").split() for line in text.splitlines() if f" {target} " in line), [])


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_keys_lead_through_the_view(measured: Collector) -> None:
    """Keys sort, filter, open a target and the help, and change the metric; Ctrl-Z and `q` give the terminal back."""
    with on_terminal(measured.http_address) as terminal:
        terminal.wait_for(lambda text: row(text, SECOND), 60, "a row")
        first = terminal.text
        assert 280 <= int(row(first, SECOND)[1]) <= 320
        assert {US, SG} <= set(terminal.lines[2].split())
        assert any(bar in first for bar in "▅▆▇█")
        assert not terminal.echoes()
        terminal.press("s")
        terminal.press("s")
        terminal.wait_for(lambda text: "s sort: difference" in text, SECONDS, "the order")
        assert terminal.lines[4].split()[1] == SECOND
        terminal.press("/gamma\r")
        terminal.wait_for(lambda text: row(text, THIRD) and not row(text, FIRST), SECONDS, "one target")
        terminal.press("\x1b")
        terminal.wait_for(lambda text: row(text, FIRST), SECONDS, "all targets")
        terminal.press("\r")
        terminal.wait_for(lambda text: "quantiles" in text, SECONDS, "the detail view")
        assert terminal.lines[1] == SECOND
        terminal.resize(columns=140, lines=40)
        terminal.wait_for(lambda text: "outcomes" in text and "ok 30" in text, SECONDS, "all sections")
        terminal.press("\x1b")
        terminal.wait_for(lambda text: "slower" in row(text, SECOND), SECONDS, "a wide table")
        terminal.press("?")
        terminal.wait_for(lambda text: "any key: back" in text, SECONDS, "the help")
        terminal.press(" m")
        terminal.wait_for(lambda text: "over a fresh connection" in text.splitlines()[0], SECONDS, "the next metric")
        terminal.press("\x1a")
        eventually(SECONDS, lambda: state_of(terminal.process.pid) == "T", "stopped")
        assert_given_back(terminal)
        terminal.process.send_signal(signal.SIGCONT)
        eventually(SECONDS, terminal.is_alternate, "the screen again")
        eventually(SECONDS, lambda: not terminal.echoes(), "the keyboard again")
        terminal.press("q")
        assert terminal.wait(SECONDS) == 0
        assert_given_back(terminal)


def assert_given_back(terminal: PseudoTerminal) -> None:
    eventually(SECONDS, lambda: not terminal.is_alternate() and terminal.shows_cursor(), "the screen from before")
    eventually(SECONDS, terminal.echoes, "the keyboard from before")
    assert terminal.text.strip() == ""


@pytest.mark.parametrize(("ending", "exit_code"), [("ctrl-c", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_each_end_resets_terminals(observatory: FakeCollector, ending: str | signal.Signals, exit_code: int) -> None:
    """After Ctrl-C, SIGTERM and SIGHUP the terminal is as before, and nothing is printed."""
    with on_terminal(observatory.address) as terminal:
        terminal.wait_for(lambda text: "q quit" in text, 60, "the screen")
        if isinstance(ending, signal.Signals):
            terminal.process.send_signal(ending)
        else:
            terminal.press(CTRL_C)
        assert terminal.wait(SECONDS) == exit_code
        assert_given_back(terminal)


def test_it_survives_a_collector_that_is_away(observatory: FakeCollector) -> None:
    """While the collector is away the last answers stay with the reason, then it goes on; `q` ends it any time."""
    with on_terminal(observatory.address) as terminal:
        terminal.wait_for(lambda text: "gpt-5-mini" in text, 60, "the screen")
        observatory.failure = ("database-unavailable", "restarting")
        terminal.wait_for(lambda text: "reconnecting for " in text, SECONDS, "the outage")
        assert "restarting" in terminal.text
        assert "gpt-5-mini" in terminal.text
        observatory.failure = None
        terminal.wait_for(lambda text: "reconnecting" not in text, SECONDS, "the next answers")
        observatory.failure = ("database-unavailable", "restarting")
        terminal.wait_for(lambda text: "reconnecting for " in text, SECONDS, "the second outage")
        terminal.press("q")
        assert terminal.wait(SECONDS) == 0


def test_a_collector_that_was_never_there_is_an_error(observatory: FakeCollector) -> None:
    """Without a first answer, the command fails as others do, and the terminal never shows the screen."""
    observatory.failure = ("database-unavailable", "starting")
    with on_terminal(observatory.address) as terminal:
        assert terminal.wait(SECONDS) == 3
        eventually(SECONDS, lambda: "error: " in terminal.text, "the error")
        assert b"\x1b[?1049h" not in terminal.output


def snapshot(observatory: FakeCollector, *options: str) -> str:
    result = CliRunner().invoke(cli, ["watch", "--collector", observatory.address, *options], prog_name="isochrone")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_a_pipe_gets_one_snapshot(observatory: FakeCollector) -> None:
    """On a pipe the same numbers are printed once, in every format."""
    assert "gpt-5-mini" in snapshot(observatory)
    document = json.loads(snapshot(observatory, "--output", "json"))
    assert (document["schema"], document["metric"], document["baseline"]) == ("isochrone.watch/1", "ttft", "us-east-2")
    rows = list(csv.DictReader(io.StringIO(snapshot(observatory, "-o", "csv"))))
    assert [line["target"] for line in rows] == [one["target"] for one in document["rows"]]
    places = {(one["target"], one["region"]): one for one in document["rows"]}
    assert places["openai/gpt-5-mini", "ap-southeast-1"]["shift"] == 191_250.0
    assert places["openai/gpt-5-mini", "us-east-2"]["median"]["value"] == 320_400


def test_options_choose_what_is_asked(observatory: FakeCollector) -> None:
    """Metric, window, short names of regions, targets and the order reach the collector or the answer."""
    text = snapshot(
        observatory,
        *("--metric", "e2e", "--window", "6h", "--baseline", "us-east", "--region", "ap-south"),
        *("--target", "openai/*", "-o", "json"),
    )
    document = json.loads(text)
    assert {row["target"] for row in document["rows"]} == {"openai/gpt-5-mini"}
    assert {row["region"] for row in document["rows"]} == {"us-east-2", "ap-southeast-1"}
    [asked] = [request for request in observatory.requests if request.path == "/v1/diff"]
    assert (asked.one("metric"), asked.one("baseline"), asked.all("against")) == (
        "e2e",
        "us-east-2",
        ["ap-southeast-1"],
    )
    window = asked.window
    assert window.until_at - window.from_at == 6 * 3600 * 1_000_000


@pytest.fixture
def following(observatory: FakeCollector) -> Iterator["subprocess.Popen[str]"]:
    process = Program[str](
        "isochrone_client",
        *("watch", "--follow", "--every", "1", "--output", "json"),
        env={**os.environ, "ISOCHRONE_COLLECTOR": observatory.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


def test_following_prints_a_document_per_line(following: "subprocess.Popen[str]") -> None:
    """With `--follow` each answer is one line of JSON, until Ctrl-C."""
    assert following.stdout is not None
    first, second = (json.loads(following.stdout.readline()) for _ in range(2))
    assert first["window"]["until_at"] < second["window"]["until_at"]
    following.send_signal(signal.SIGINT)
    assert following.communicate(timeout=SECONDS)[1] == ""
    assert following.returncode == 0
