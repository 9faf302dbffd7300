"""Every reading command and every HTTP path answers without samples, and states what is missing.

The commands are those of the click tree that take --collector, each with every value of its choices, so that a new
command or a new choice is included.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner, Result

from fixtures.collector import Collector, StartCollector
from isochrone_client.cli import cli
from isochrone_client.window import now_at
from isochrone_wire.model import Vantage
from testdata.preforked import Program
from testdata.pushed_rounds import PLAN, SG, US, Fleet, rounds_until
from testdata.waiting import eventually

START = f"no samples from {US}: start an agent there"
COMMAND = f"isochrone-agent run --vantage {US}-1 --region {US} --collector "
SECOND = "no samples from a second region: start an agent there"
PAST = "2026-01-01..2026-01-02"
MANY = 70

# Arguments that a command requires.
REQUIRED = {
    "explain": [US, "chat"],
    "routes export": ["--output", "json", "--region", US, "--file", "-"],
    "samples export": ["--file", "-"],
}
# Further questions of a command, besides the values of its choices.
QUESTIONS = {
    "coverage": [["--spend"]],
    "diff": [["--explain", "alpha/m"]],
    "simulate": [["--policy", "race:2"]],
    "slo": [["--use", "voice"]],
}
# They run until they are interrupted, or until their input ends.
ENDLESS = {"routes watch", "routes kubernetes", "mcp", "gateway"}
# They list events, of which there may be none, and ask for no samples.
EVENTS = {"alerts", "incidents", "routes history"}


@dataclass(frozen=True, slots=True)
class State:
    """A state of the database, the window to ask for, and sentences expected in the answers to commands.

    `says` is expected from all commands that take a window; `more` from the commands that it names.
    """

    plan: bool = True
    rounds: int = 0
    vantages: tuple[Vantage, ...] = ()
    window: str = "24h"
    says: str = ""
    more: tuple[tuple[str, str], ...] = ()


FIRST, SECOND_VANTAGE = Vantage(name="us-1", region=US), Vantage(name="sg-1", region=SG)
STATES = {
    "no plan": State(plan=False, says="no plan has been applied yet"),
    "no samples": State(says=START, more=(("diff", COMMAND), ("vantages", COMMAND))),
    "empty window": State(rounds=MANY, vantages=(FIRST, SECOND_VANTAGE), window=PAST, says=f"no samples from {US}"),
    "only the baseline": State(
        rounds=MANY, vantages=(FIRST,), more=(("diff", SECOND), ("regions", SECOND), ("diff", "--region REGION"))
    ),
    "only another region": State(
        rounds=MANY, vantages=(SECOND_VANTAGE,), more=(("diff", START), ("diff", COMMAND), ("regions", START))
    ),
    "one round": State(
        rounds=1,
        vantages=(FIRST, SECOND_VANTAGE),
        more=(
            ("diff", "1 of 24 rounds needed"),
            ("leaderboard", "260?"),
            ("slo", "1 of 59 samples"),
            ("simulate", "too few to learn from"),
            ("drift", "60 rounds needed"),
        ),
    ),
}


def commands() -> Iterator[tuple[str, click.Command]]:
    waiting: list[tuple[str, click.Command]] = [("", cli)]
    while waiting:
        words, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            found = {name: command.get_command(context, name) for name in command.list_commands(context)}
            waiting += [(f"{words} {name}".strip(), one) for name, one in found.items() if one is not None]
        if any(option.name == "collector" and option.opts == ["--collector"] for option in command.params):
            yield words, command


def questions(words: str, command: click.Command, state: State) -> Iterator[list[str]]:
    """The command lines of a command: plain, with each value of each choice but the default, and further ones."""
    options = {option.name: option for option in command.params}
    fixed = [*words.split(), *REQUIRED.get(words, [])]
    fixed += ["--window", state.window] if "window" in options else []
    yield fixed
    for option in options.values():
        if isinstance(option.type, click.Choice) and isinstance(option, click.Option) and option.name != "output":
            yield from ([*fixed, option.opts[0], str(one)] for one in option.type.choices if one != option.default)
    output = options.get("output")
    if output is not None and isinstance(output.type, click.Choice) and words not in REQUIRED:
        yield from ([*fixed, "--output", str(one)] for one in output.type.choices if one != output.default)
    yield from ([*fixed, *more] for more in QUESTIONS.get(words, []))


def ask(collector: Collector, arguments: list[str], config: Path) -> Result:
    """Run a command against this collector, without the user's own configuration."""
    environment = {"ISOCHRONE_COLLECTOR": collector.http_address, "XDG_CONFIG_HOME": str(config)}
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="isochrone")


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> State:
    return STATES[request.param]


@pytest.fixture
def collector(state: State, start_collector: StartCollector) -> Collector:
    started = start_collector(more=["--http-listen", "127.0.0.1:0"])
    if state.plan:
        started.call.apply(PLAN)
    if state.rounds:
        fleet = Fleet({target.name: target.id for target in started.call.targets().targets})
        fleet.push_rounds(started.call, rounds_until(now_at(), state.rounds), vantages=state.vantages)
    return started


def test_every_question_is_answered(state: State, collector: Collector, tmp_path: Path) -> None:
    """Each command and path ends with a documented code and a sentence that names the plan, region or agent missing."""
    told: dict[str, str] = {}
    for words, command in commands():
        options = {option.name or "" for option in command.params}
        for arguments in questions(words, command, state) if words not in ENDLESS else ():
            result = ask(collector, arguments, tmp_path)
            shown = (result.stdout + result.stderr).replace("\n", " ")
            told[words] = told.get(words, "") + shown
            assert result.exit_code in allowed(words, state), (arguments, shown)
            assert isinstance(result.exception, SystemExit | None), arguments
            assert shown.strip(), arguments
            assert "failed to answer" not in shown, arguments
            if selects_samples(words, arguments, options):
                assert state.says in shown, (arguments, shown)
            if "note: " in result.stderr and arguments[-1] == state.window:
                assert ask(collector, [*arguments, "--exit-code"], tmp_path).exit_code == 4, arguments
    for words, sentence in state.more:
        assert sentence in told[words], (words, told[words])
    check_paths(state, collector)
    log = collector.log()
    assert "request.failed" not in log, log
    assert "Traceback" not in log, log


def selects_samples(words: str, arguments: list[str], options: set[str]) -> bool:
    """True if the question is about the samples of the window: some commands have a window for another question."""
    return not (words in EVENTS or "--spend" in arguments or "window" not in options)


def allowed(words: str, state: State) -> set[int]:
    """The documented exit codes: 0; 1 of an export without content; 2 without a baseline, route or table."""
    codes = {0, 5, 6} if words == "status" else {0}
    if words in ("routes export", "explain"):
        codes |= {1, 2}
    if words == "samples export":
        codes |= {1}
    if words in ("diff", "report") and not state.plan:
        codes |= {2}
    return codes


@pytest.mark.parametrize("words", [["routes", "watch"], ["samples", "--follow"]], ids=" ".join)
def test_streams_wait_for_the_first_sample(words: list[str], start_collector: StartCollector) -> None:
    """On an empty database a stream waits without an error, and Ctrl-C ends it with 0."""
    collector = start_collector()
    process = Program[str](
        "isochrone_client",
        *words,
        env={**os.environ, "ISOCHRONE_COLLECTOR": collector.http_address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if "watch" in words:
        eventually(60, lambda: collector.scrape()["isochrone_route_watchers"] == 1, "the watch is open")
    else:
        assert "outcome" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=60)[1], process.returncode) == ("", 0)
    assert "Traceback" not in collector.log()


def check_empty_window(http: httpx.Client, paths: dict[str, Any], past: dict[str, str]) -> None:
    """Each path that takes a window has a document without rows for one that is empty, unless it lacks a baseline."""
    for path, methods in paths.items():
        named = {one["name"] for one in methods.get("get", {}).get("parameters", ())}
        if "from" in named and path != "/v1/samples/export":
            answer = http.get(path, params=past)
            assert answer.status_code in ((200, 400) if path == "/v1/diff" else (200,)), (path, answer.text)
            if answer.status_code == 200 and path != "/v1/diff":
                assert all(not row.get("recorded") for row in answer.json()["rows"]), path


def check_paths(state: State, collector: Collector) -> None:
    """Each operation of the OpenAPI document answers with a documented status, and in JSON except for streams and
    metrics; differentials name the regions that are missing.
    """
    with httpx.Client(base_url=collector.http, trust_env=False, timeout=10) as http:
        paths = http.get("/v1/openapi.json").json()["paths"]
        for template, method in ((template, method) for template, methods in paths.items() for method in methods):
            path = template.replace("{client_region}", US).replace("{route}", "chat").replace("{id}", "sample_x")
            with http.stream(method.upper(), path, json={} if method == "post" else None) as answer:
                kind = answer.headers["content-type"]
                assert answer.status_code in (200, 400, 404, 503), (method, path)
                if not kind.startswith(("text/", "application/x-ndjson")):
                    document = json.loads(answer.read())
                    assert answer.status_code == 200 or document["detail"], path
        differentials = http.get("/v1/diff").json()
        if not state.plan:
            assert "apply a plan" in differentials["detail"]
        elif state.window == "24h" and len(state.vantages) < 2:
            sentences = " ".join(one["sentence"] for one in differentials["missing"])
            assert (START if FIRST not in state.vantages else SECOND) in sentences
        else:
            assert differentials["missing"] == []
        past = {"from": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
        check_empty_window(http, paths, past)
        if state.plan:
            assert US in http.get("/v1/diff", params=past).json()["missing"][0]["region"]
