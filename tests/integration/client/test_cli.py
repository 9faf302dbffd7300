"""The `isochrone` command against a real socket: its requests, output, errors and exit codes, `--watch`, completion."""

import csv
import io
import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from fixtures.fake_collector import DIFFERENTIALS, VANTAGES, FakeCollector, stored
from isochrone_client import client
from isochrone_client.address import Collector
from isochrone_client.cli import cli
from isochrone_client.window import now_at
from isochrone_wire.answers import Decision, Order
from isochrone_wire.fleet import Liveness, TargetList, VantageList
from isochrone_wire.model import DAY_US, SECOND_US
from testdata import twelve_regions
from testdata.reading import lines_of, run, started, stopped, variables
from testdata.waiting import eventually

READING = ["diff", "leaderboard", "slo", "tiers", "targets", "simulate", "samples", "coverage", "vantages"]
WINDOWLESS = ("targets", "vantages")
SCHEMA_OF = {"slo": "budgets"}
UNDECIDED = replace(DIFFERENTIALS[2], reason="3 of 24 rounds needed")


@pytest.mark.parametrize("command", READING)
def test_each_command_prints_its_answer(observatory: FakeCollector, command: str) -> None:
    """Each prints a table within 100 columns, a document with schema, window and all rows, and as many CSV lines."""
    result = run(observatory, command)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "gpt-5-mini" in result.stdout
    assert all(cell_len(line) <= 100 for line in result.stdout.splitlines())
    document = json.loads(run(observatory, command, "--output", "json").stdout)
    assert document["schema"] == f"isochrone.{SCHEMA_OF.get(command, command)}/1"
    assert len(document["rows"]) in (2, 3, 5)
    if command not in WINDOWLESS:
        begin, end = (datetime.fromisoformat(document["window"][name]) for name in ("from_at", "until_at"))
        assert (end - begin).total_seconds() == 86_400
    lines = list(csv.DictReader(io.StringIO(run(observatory, command, "-o", "csv").stdout)))
    assert len(lines) == len(document["rows"])


@pytest.mark.parametrize("command", [*READING, "regions"])
def test_every_example_of_the_help_works(observatory: FakeCollector, command: str) -> None:
    """Every example of the help gets an answer; the first one, where others have names that the fake does not know."""
    text = run(observatory, command, "--help").stdout
    examples = re.findall(rf"^\s+(isochrone {command}.*)$", text, re.MULTILINE)
    assert examples
    known = examples[:1] if command in ("diff", "simulate", "samples") else examples
    assert {run(observatory, *shlex.split(line)[1:]).exit_code for line in known} == {0}


def test_the_plan_gives_the_baseline(observatory: FakeCollector) -> None:
    """Without --baseline it is the plan's; with it, the plan is requested only to explain an empty answer."""
    run(observatory, "diff")
    run(observatory, "diff", "--baseline", "eu-central-1", "--against", "a", "--against", "b", "--metric", "e2e")
    plan, first, second, *reason = observatory.requests
    assert [request.path for request in reason] == ["/v1/targets", "/v1/vantages"]
    assert plan.path == "/v1/targets"
    assert (first.one("baseline"), first.all("against"), first.one("metric")) == ("us-east-2", [], "ttft")
    assert (second.one("baseline"), second.all("against"), second.one("metric")) == ("eu-central-1", ["a", "b"], "e2e")


def test_selections_are_passed_on(observatory: FakeCollector) -> None:
    """The request has the regions, targets, limit and window of the command line."""
    before_at = now_at()
    options = ["--region", "us-east-2", "--target", "openai/*", "--target", "deepseek/*", "--window", "7d"]
    run(observatory, "samples", "--limit", "2", *options)
    request = observatory.requests[0]
    assert (request.all("region"), request.one("limit")) == (["us-east-2"], "2")
    assert request.all("target") == ["openai/*", "deepseek/*"]
    window = request.window
    assert window.until_at - window.from_at == 7 * DAY_US
    assert before_at <= window.until_at <= now_at()


def test_only_decided_leaves_the_undecided_out(observatory: FakeCollector) -> None:
    """`--only decided` shows decisions and no footnotes."""
    result = run(observatory, "diff", "--only", "decided", "--sort", "target")
    assert result.exit_code == 0
    assert "undecided" not in result.stdout
    assert result.stdout.index("deepseek-v4-flash") < result.stdout.index("gpt-5-mini")


def test_explain_prints_sentences_and_phases(observatory: FakeCollector) -> None:
    """`--explain` requests the phases of one target and prints sentences and a table of the phases."""
    result = run(observatory, "diff", "--baseline", "us-east-2", "--explain", "gpt-5-mini")
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(cell_len, result.stdout.splitlines())) <= 100
    output = " ".join(result.stdout.split())
    for words in (
        "191 ms (59.7 %) longer",
        "98 % network, 2 % server",
        "contribution of each phase",
        "+178 +178 … +179 1402",
    ):
        assert words in output
    asked = observatory.requests[-1]
    assert (asked.all("target"), asked.one("explain")) == (["openai/gpt-5-mini"], "true")


def test_explain_in_every_format(observatory: FakeCollector) -> None:
    """Markdown has the explanation too; JSON and CSV have all fields of the differential and the explanation."""
    asked = ("diff", "--explain", "openai/*")
    assert "| origin | A first token" in run(observatory, *asked, "-o", "markdown").stdout
    (row,) = json.loads(run(observatory, *asked, "-o", "json").stdout)["rows"]
    assert [part["name"] for part in row["parts"]] == ["dns", "tcp", "tls", "rtt", "server", "edge", "provider"]
    assert row["story"][1].startswith("decision: ap-southeast-1 is slower")
    (line,) = csv.DictReader(io.StringIO(run(observatory, *asked, "-o", "csv").stdout))
    assert json.loads(line["parts"]) == row["parts"]
    assert "decision: ap-southeast-1 is slower" in line["story"]


def test_explain_names_its_own_target(observatory: FakeCollector) -> None:
    """`--explain` with `--target` is a usage error, and no request is sent."""
    result = run(observatory, "diff", "--explain", "x", "--target", "y")
    assert result.exit_code == 2
    assert observatory.requests == []


def test_an_undecided_explanation_has_next_steps(observatory: FakeCollector) -> None:
    """An explanation without a decision has the next steps, and the exit code is 4 on request."""
    observatory.differentials = (replace(DIFFERENTIALS[2], target="openai/gpt-5-mini"),)
    result = run(observatory, "diff", "--explain", "gpt-5-mini", "--exit-code")
    assert result.exit_code == 4
    assert "21 more rounds with a value on both sides" in result.stdout


@pytest.mark.parametrize(("more", "exit_code"), [((), 0), (("--exit-code",), 4)])
def test_undecided_is_four_on_request(observatory: FakeCollector, more: tuple[str, ...], exit_code: int) -> None:
    """If nothing is decided, the table has the reasons and stderr a note; --exit-code makes that exit code 4."""
    observatory.differentials = (UNDECIDED,)
    result = run(observatory, "diff", *more)
    assert result.exit_code == exit_code
    assert "undecided [1]" in result.stdout
    assert "[1] 3 of 24 rounds needed" in result.stdout
    assert result.stderr.startswith("note: nothing is decided")


@pytest.mark.parametrize(
    "command", ["diff", "leaderboard", "slo", "tiers", "samples", "coverage", "targets", "vantages"]
)
def test_an_empty_answer_has_a_hint(observatory: FakeCollector, command: str) -> None:
    """An empty answer is no table or an empty document, with a hint on stderr; the exit code is 0, on request 4."""
    plan = observatory.targets
    observatory.differentials = observatory.standings = observatory.samples = observatory.coverage = ()
    observatory.latency_budgets = observatory.tiers = ()
    observatory.targets = TargetList(plan_version=0, baseline="us-east-2")
    observatory.vantages = VantageList(plan_version=0, answered_at=0)
    people, programs = run(observatory, command), run(observatory, command, "-o", "json", "--exit-code")
    assert (people.exit_code, programs.exit_code) == (0, 4)
    assert people.stdout == ""
    assert json.loads(programs.stdout)["rows"] == []
    assert "isochrone-collector apply" in people.stderr
    if command != "targets":
        observatory.targets = plan
        start = "isochrone-agent run --vantage us-east-2-1 --region us-east-2 --collector 127.0.0.1:4600"
        expected = start if command != "diff" else "--region REGION"
        assert expected in run(observatory, command).stderr


def test_a_collector_that_goes_away_leaves_the_plain_hint(observatory: FakeCollector) -> None:
    """If the reason for an empty answer cannot be asked for, the note has the window and the general hint."""
    observatory.standings = ()
    observatory.failures = {"/v1/vantages": ("database-unavailable", "gone")}
    result = run(observatory, "leaderboard")
    assert result.exit_code == 0
    assert result.stderr.startswith("note: no samples between ")
    assert "hint: see `isochrone coverage`" in result.stderr


def test_no_vantage_online_is_four(observatory: FakeCollector) -> None:
    """`vantages` shows late vantages with the reason; the exit code is 4 because no samples arrive."""
    late = tuple(vantage for vantage in VANTAGES.vantages if vantage.liveness is not Liveness.ONLINE)
    observatory.vantages = replace(VANTAGES, vantages=late)
    result = run(observatory, "vantages", "--exit-code")
    assert (result.exit_code, run(observatory, "vantages").exit_code) == (4, 0)
    assert "late [2]" in result.stdout
    assert "the next was due 9 min ago" in result.stdout
    assert "none of 2 vantages is online" in result.stderr


def test_spend_is_requested(observatory: FakeCollector) -> None:
    """`coverage --spend` requests the spend of the given regions, in every format; without spend there is a hint."""
    table = run(observatory, "coverage", "--spend")
    assert (table.exit_code, table.stderr) == (0, "")
    assert "deepseek" in table.stdout
    document = json.loads(run(observatory, "coverage", "--spend", "--region", "us-east-2", "-o", "json").stdout)
    assert document["schema"] == "isochrone.spend/1"
    assert {row["region"] for row in document["rows"]} == {"us-east-2"}
    assert [request.path for request in observatory.requests] == ["/v1/spend"] * 2
    observatory.spend = ()
    nobody = run(observatory, "coverage", "--spend", "--exit-code")
    assert (nobody.exit_code, nobody.stdout) == (4, "")
    assert "isochrone targets" in nobody.stderr


def test_no_plan_no_baseline(observatory: FakeCollector) -> None:
    """Before the first plan, `diff` is a usage error whose hint names --baseline."""
    observatory.targets = TargetList(plan_version=0, baseline="")
    result = run(observatory, "diff")
    assert result.exit_code == 2
    assert "--baseline" in result.stderr


@pytest.mark.parametrize("command", ["diff", "leaderboard", "samples", "coverage"])
def test_an_unknown_target_is_a_usage_error(observatory: FakeCollector, command: str) -> None:
    """An unknown target is exit code 2, with the collector's sentence and a hint."""
    result = run(observatory, command, "--target", "nobody/*")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: no target is called 'nobody/*'\n"
        "hint: `isochrone targets` lists the targets, `isochrone coverage` the regions, `isochrone routes` the routes\n"
    )


@pytest.mark.parametrize(
    ("sentence", "hint"),
    [
        ("unknown use 'vioce'; known: voice", "`isochrone slo` shows all uses"),
        ("there is no generation 9 of 'chat' in 'us-east-2'", "`isochrone routes history` lists the generations"),
        ("unknown region 'mars'; known: us-east-2", "`isochrone vantages` lists them"),
        ("unknown client region 'mars'; known: us-east-2", "`isochrone routes` shows the tables of all regions"),
        ("unknown route 'chatt'; known: chat", "`isochrone routes` shows the tables of all routes"),
    ],
)
def test_the_hint_fits_the_unknown_name(observatory: FakeCollector, sentence: str, hint: str) -> None:
    """The hint names the command that lists names of that kind."""
    observatory.failure = ("unknown-name", sentence)
    result = run(observatory, "slo")
    assert (result.exit_code, f"hint: {hint}" in result.stderr) == (2, True)


@pytest.mark.parametrize(("kind", "exit_code"), [("internal", 1), ("bad-request", 2), ("database-unavailable", 3)])
def test_failures_are_sentences(observatory: FakeCollector, kind: str, exit_code: int) -> None:
    """Each failure of the collector gives one sentence, a hint, an exit code and no traceback."""
    observatory.failure = (kind, "the disk is full")
    result = run(observatory, "leaderboard")
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert "the disk is full" in result.stderr
    assert len(result.stderr.splitlines()) == 2


def test_errors_cannot_control_the_terminal(observatory: FakeCollector) -> None:
    """A sentence from the collector is printed without escape sequences."""
    observatory.failure = ("unknown-name", "no target is called '\x1b[31mred\x07'")
    result = run(observatory, "leaderboard")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "\x07" not in result.stderr


def test_unreachable_is_three(observatory: FakeCollector) -> None:
    """An unreachable collector is exit code 3, and the option overrides the environment."""
    result = run(observatory, "targets", "--collector", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(("columns", "width"), [("", 100), ("60", 60), ("80", 80), ("nonsense", 100), ("9999", 200)])
def test_a_process_of_its_own_prints_plain_text(observatory: FakeCollector, columns: str, width: int) -> None:
    """Piped output is UTF-8 without colours, within COLUMNS if that is set, otherwise within 100 columns."""
    with started(observatory, "diff", COLUMNS=columns, FORCE_COLOR="1") as process:
        stdout, stderr = (text.decode() for text in process.communicate(timeout=30))
    assert (process.returncode, stderr) == (0, "")
    assert "\x1b" not in stdout
    assert max(cell_len(line) for line in stdout.splitlines()) <= width
    assert ("independent" in stdout.partition("\n[1]")[0].partition("left out")[0]) == (width > 140)


def test_wide_shows_all_columns(observatory: FakeCollector) -> None:
    """--wide shows what a narrow screen leaves out; without it a line names the columns and the option."""
    narrow = run(observatory, "diff", COLUMNS="80").stdout
    left_out = (
        "left out at 80 columns: providers of targets, network, server, rounds ≈\nindependent, correlation; --wide"
    )
    assert left_out in narrow
    wide = run(observatory, "diff", "--wide", COLUMNS="80").stdout
    assert "left out" not in wide
    assert "openai/gpt-5-mini" in wide
    assert "1436 ≈ 412" in wide


def test_without_a_command_the_status_is_shown(observatory: FakeCollector, tmp_path: Path) -> None:
    """A bare `isochrone` shows `status` of the collector that a variable or a context names, else the help."""
    alone: dict[str, Any] = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"), str(tmp_path))
    nowhere = alone | dict.fromkeys(("ISOCHRONE_COLLECTOR", "ISOCHRONE_DATA_DIR", "ISOCHRONE_UNIX_SOCKET"))

    def bare(*words: str) -> Result:
        return CliRunner().invoke(cli, words, env=nowhere, prog_name="isochrone")

    asked = run(observatory, "status", **alone)
    assert run(observatory, **alone).stdout == asked.stdout != ""
    assert "Usage: isochrone" in bare().output
    assert bare("context", "add", "here", observatory.address).exit_code == 0
    known = bare()
    assert (known.stdout, known.exit_code) == (asked.stdout, asked.exit_code)
    assert observatory.requests[-1].path == "/v1/status"


def test_many_regions_are_one_table(observatory: FakeCollector) -> None:
    """Twelve regions are columns of one table; with --wide, each has a table with every column, and csv its rows."""
    observatory.differentials = twelve_regions.DIFFERENTIALS.differentials
    headings = [line for line in run(observatory, "diff", COLUMNS="80").stdout.splitlines() if "target" in line[:6]]
    assert [heading.split()[-1] for heading in headings] == ["usw2"]
    assert run(observatory, "diff", "--wide").stdout.count(" against us-east-2\n") == len(twelve_regions.REGIONS)
    assert len(run(observatory, "diff", "--output", "csv").stdout.splitlines()) == 1 + len(observatory.differentials)


def test_a_narrow_encoding_is_no_reason_to_fail(observatory: FakeCollector) -> None:
    """A terminal whose encoding has no en dash gets a question mark."""
    encoding = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "isochrone_client", "leaderboard"],
        env={**os.environ, **variables(observatory, **encoding)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"?: not known" in done.stdout


def test_a_closed_pipe_is_silent(observatory: FakeCollector) -> None:
    """If the other end of the pipe is closed, as by `head`, nothing is printed on stderr."""
    with started(observatory, "samples", "--output", "json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.wait(timeout=30)
        assert process.stderr.read() == b""


def opened(observatory: FakeCollector, *arguments: str, **environment: str) -> "tuple[int, subprocess.Popen[bytes]]":
    ours, theirs = pty.openpty()
    base = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "isochrone_client", *arguments]
    own = {**base, **variables(observatory, **environment)}
    process = subprocess.Popen(command, env=own, stdout=theirs, stderr=theirs)
    os.close(theirs)
    return ours, process


def on_a_terminal(observatory: FakeCollector, *arguments: str, **environment: str) -> str:
    ours, process = opened(observatory, *arguments, **environment)
    written = b""
    try:
        while piece := os.read(ours, 4096):
            written += piece
    except OSError:  # the terminal is closed with its process
        pass
    os.close(ours)
    assert process.wait(timeout=30) == 0
    return written.decode()


def test_a_terminal_shows_colours(observatory: FakeCollector) -> None:
    """On a terminal decisions are coloured, and tables are as wide as it, between 60 and 200 columns."""
    for columns in (60, 80, 140, 240):
        text = on_a_terminal(observatory, "diff", COLUMNS=str(columns))
        assert "\x1b[32mfaster" in text
        plain = re.sub(r"\x1b\[[\d;]*m", "", text)
        assert all(cell_len(line) <= min(columns, 200) for line in plain.splitlines())
        assert ("rounds ≈" in plain.partition("left out")[0]) == (columns > 100)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_is_respected(observatory: FakeCollector, environment: dict[str, str]) -> None:
    """NO_COLOR and a dumb terminal give text without escape sequences."""
    assert "\x1b" not in on_a_terminal(observatory, "diff", **environment)


def test_following_goes_on_with_new_samples(observatory: FakeCollector) -> None:
    """`--follow` prints each sample once, also late ones, or the headings while there is none; Ctrl-C is 0."""
    observatory.samples = (stored(2, ttft_us=3), stored(1, ttft_us=2))
    words = ("samples", "--follow", "--limit", "1", "--window", "52w", "--output", "json")
    with started(observatory, *words) as process:
        lines = lines_of(process)
        assert json.loads(next(lines))["ttft_us"] == 2
        late, new = stored(5, ttft_us=4), stored(0, ttft_us=1)
        observatory.samples = (*observatory.samples, new, late)
        assert [json.loads(next(lines))["ttft_us"] for _ in range(2)] == [4, 1]
        assert stopped(process) == ("", "")
    observatory.samples = ()
    with started(observatory, "samples", "--follow", "--output", "csv") as process:
        lines = lines_of(process)
        assert next(lines).startswith("target,vantage,region")
        observatory.samples = (replace(stored(0), received_at=now_at() - SECOND_US),)
        assert next(lines).startswith("openai/gpt-5-mini,ohio-1")
        stopped(process)


def test_decisions_are_words_of_the_wire(observatory: FakeCollector) -> None:
    """JSON has decision, reason and numbers as on the wire; unknown values are null."""
    rows = json.loads(run(observatory, "diff", "--sort", "target", "-o", "json").stdout)["rows"]
    assert [row["decision"] for row in rows] == [Decision.FASTER, Decision.UNDECIDED, Decision.SLOWER]
    assert (rows[1]["shift"], rows[1]["reason"], rows[2]["shift"]) == (None, "3 of 24 rounds needed", 191_250.0)


@pytest.mark.parametrize("order", list(Order))
def test_leaderboards_are_requested_in_an_order(observatory: FakeCollector, order: Order) -> None:
    """`--by` is passed on, and the answer names the order."""
    result = run(observatory, "leaderboard", "--by", order.value, "-o", "json")
    assert result.exit_code == 0
    assert observatory.requests[-1].one("by") == order.value
    assert json.loads(result.stdout)["order"] == order.value


def test_budgets_of_the_uses_asked_for(observatory: FakeCollector) -> None:
    """Each `--use` is passed on, with targets and regions."""
    result = run(observatory, "slo", "--use", "voice", "--use", "step", "--region", "us-east-2")
    request = observatory.requests[-1]
    assert (result.exit_code, request.all("use")) == (0, ["voice", "step"])
    assert request.all("region") == ["us-east-2"]


def test_the_best_region_is_requested(observatory: FakeCollector) -> None:
    """`regions` requests the costs by a metric, with and without `--best`; without a value there is a hint, and 4."""
    result = run(observatory, "regions", "--best", "--metric", "ttft", "--target", "openai/*", "-o", "json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["schema"], document["metric"]) == (0, "isochrone.region-costs/1", "ttft")
    assert [row["decision"] for row in document["rows"]] == ["faster", "slower", "undecided"]
    run(observatory, "regions")
    run(observatory, "vantages")
    assert [request.path for request in observatory.requests] == [
        "/v1/region-costs",
        "/v1/region-costs",
        "/v1/vantages",
    ]
    result = run(observatory, "regions", "--best", "--metric", "e2e", "--exit-code")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "isochrone coverage" in result.stderr


@pytest.mark.parametrize("command", READING)
def test_json_is_a_document_per_line(observatory: FakeCollector, command: str) -> None:
    """Each refresh is one line of JSON with a window of its own, and Ctrl-C ends with exit code 0."""
    with started(observatory, command, "--watch", "1", "--output", "json") as process:
        first, second = map(json.loads, islice(lines_of(process), 2))
        assert stopped(process)[1] == ""
    assert first["schema"] == second["schema"]
    assert len(first["rows"]) == len(second["rows"]) >= 1
    if "window" in first:
        assert first["window"]["until_at"] < second["window"]["until_at"]


def test_csv_has_one_head(observatory: FakeCollector) -> None:
    """The head comes once, the fields chosen in each refresh."""
    with started(observatory, "leaderboard", "--watch", "1", "-o", "csv", "--fields", "rank,model") as process:
        lines = list(islice(lines_of(process), 5))
        stopped(process)
    assert lines == ["rank,model", *["1,deepseek-v4-flash", "2,gpt-5-mini"] * 2]


def test_it_survives_a_collector_that_is_away(observatory: FakeCollector) -> None:
    """An outage is one error line, then refreshes go on; without a first answer --watch fails as the command does."""
    with started(observatory, "leaderboard", "--watch", "1", "--output", "json") as process:
        lines = lines_of(process)
        next(lines)
        observatory.failure = ("database-unavailable", "restarting")
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert line.startswith("error: ")
        assert "trying again every 1 s" in line
        refused = len(observatory.requests)
        eventually(20, lambda: len(observatory.requests) >= refused + 2, "two more refusals")
        observatory.failure = None
        assert all(json.loads(next(lines))["rows"] for _ in range(3))
        assert stopped(process)[1] == ""
    observatory.failure = ("database-unavailable", "starting")
    result = run(observatory, "diff", "--watch")
    assert (result.exit_code, result.stderr.startswith("error: ")) == (3, True)


def test_a_terminal_is_refreshed_in_place(observatory: FakeCollector) -> None:
    """Each refresh clears the screen first and fits into it, so that the table stays where it was."""
    ours, process = opened(observatory, "leaderboard", "--watch", "1", COLUMNS="100", LINES="8")
    shown = b""
    while shown.count(b"\x1b[H\x1b[2J") < 2:
        shown += os.read(ours, 65_536)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    os.close(ours)
    first = shown.split(b"\x1b[H\x1b[2J")[1]
    assert (first.count(b"\n"), b"deepseek" in first, first.splitlines()[-1].endswith(b"more lines")) == (7, True, True)


def completed(words: str, **environment: str) -> list[str]:
    """What bash offers for the last of these words."""
    variables = {
        "_ISOCHRONE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "ISOCHRONE_IDENTITY": "",
        **environment,
    }
    done = CliRunner().invoke(cli, [], prog_name="isochrone", complete_var="_ISOCHRONE_COMPLETE", env=variables)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("isochrone leaderboard --region us", ["us-east-2"]),
        ("isochrone diff --against ap", ["ap-southeast-1"]),
        ("isochrone diff --baseline ", ["ap-southeast-1", "us-east-2"]),
        ("isochrone samples --target open", ["openai/gpt-5-mini"]),
        ("isochrone diff --explain gpt", ["gpt-5-mini"]),
        ("isochrone explain us", ["us-east-2"]),
        ("isochrone slo --output j", ["json"]),
    ],
)
def test_names_are_completed(observatory: FakeCollector, words: str, offered: list[str]) -> None:
    """Regions are those of plan and vantages, targets those of the plan, by their name or their model."""
    assert completed(words, ISOCHRONE_COLLECTOR=observatory.address) == offered
    if "ISOCHRONE" not in words and "--output" not in words:
        command, _, rest = words.removeprefix("isochrone ").partition(" ")
        assert completed(f"isochrone {command} --collector {observatory.address} {rest}") == offered


def test_without_a_collector_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is unreachable, or does not answer within half a second, prints nothing."""
    limits_us = []

    class Recorded(client.ReadClient):
        def __init__(self, where: str | Collector, **limits: Any) -> None:
            super().__init__(where, **limits)
            limits_us.append(limits)

    monkeypatch.setattr(client, "ReadClient", Recorded)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for where in ("127.0.0.1:1", "no address:", f"127.0.0.1:{silent.getsockname()[1]}"):
            assert completed("isochrone leaderboard --region us", ISOCHRONE_COLLECTOR=where) == []
    assert limits_us == [{"timeout_us": 500_000, "connect_timeout_us": 500_000}] * 2


def test_contexts_are_completed(tmp_path: Path) -> None:
    """`--collector` offers the contexts of the configuration."""
    (tmp_path / "isochrone").mkdir()
    (tmp_path / "isochrone" / "config.toml").write_text("[contexts.prod]\ncollector = '127.0.0.1:1'\n")
    assert completed("isochrone diff --collector pr", XDG_CONFIG_HOME=str(tmp_path)) == ["prod"]
    assert completed("isochrone context use p", XDG_CONFIG_HOME=str(tmp_path)) == ["prod"]


def test_fields_are_chosen_listed_and_checked(observatory: FakeCollector) -> None:
    """`--fields` selects, `--fields help` lists, and an unknown field ends with exit code 2 and the nearest name."""
    rows = json.loads(run(observatory, "diff", "--fields", "decision, target", "-o", "json").stdout)["rows"]
    assert list(rows[0]) == ["decision", "target"]
    listed = run(observatory, "samples", "--fields", "help")
    assert (listed.exit_code, "ttft_us" in listed.stdout.splitlines()) == (0, True)
    unknown = run(observatory, "coverage", "--fields", "regoin")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "did you mean 'region'?" in unknown.stderr


def test_defaults_come_from_the_configuration(observatory: FakeCollector, tmp_path: Path) -> None:
    """Output and baseline of the configuration are defaults: a context's first, and options precede them."""
    (tmp_path / "isochrone").mkdir()
    (tmp_path / "isochrone" / "config.toml").write_text(
        "[defaults]\noutput = 'json'\nbaseline = 'us-east-2'\n"
        f"[contexts.lab]\ncollector = '{observatory.address}'\nbaseline = 'eu-central-1'\n"
    )
    home = {"XDG_CONFIG_HOME": str(tmp_path), "ISOCHRONE_COLLECTOR": "lab"}
    assert json.loads(run(observatory, "diff", **home).stdout)["rows"]
    assert observatory.requests[-1].one("baseline") == "eu-central-1"
    assert run(observatory, "diff", "-o", "csv", "--baseline", "a", **home).stdout.startswith("target,")
    assert observatory.requests[-1].one("baseline") == "a"
