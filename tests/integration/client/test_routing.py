"""The commands for route tables against a real socket: show, watch, history, explain; and exports that follow the
tables, with a collector that comes and goes.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from fixtures.fake_collector import FakeCollector, serving
from isochrone_client.gateways import FORMATS
from isochrone_client.window import now_at
from isochrone_wire.durations import HOUR_US
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import ChangeKind, RouteTable
from testdata.documented_commands import blocks_of, section
from testdata.ports import free_port
from testdata.reading import Process, following, lines_of, options, run, started, stopped
from testdata.routes import CHAT, EXPIRED, EXPLANATION, TABLES, UNKNOWN_YET, VOICE, fresh
from testdata.waiting import eventually


def generations_of(process: Process) -> Iterator[int]:
    """Yield the printed generations as they arrive."""
    return (json.loads(line)["generation"] for line in lines_of(process))


def rebuilt(table: RouteTable, **changes: object) -> RouteTable:
    now = now_at()
    instants = {"built_at": now, "fresh_until_at": now + HOUR_US, "stale_until_at": now + 2 * HOUR_US}
    return replace(table, **{**instants, **changes})  # type: ignore[arg-type]  # fields by name


def numbered(generation: int, table: RouteTable = CHAT) -> RouteTable:
    return rebuilt(table, generation=generation, etag=f"{generation}-0")


def test_every_region_is_shown(routing: FakeCollector) -> None:
    """Without --region the tables of all regions are shown, by region and route, within 100 columns."""
    routing.tables = tuple(map(rebuilt, TABLES))
    result = run(routing, "routes")
    assert (result.exit_code, result.stderr) == (0, "")
    for table in TABLES:
        assert f"{table.route} from {table.client_region}: " in result.stdout
    assert all(cell_len(line) <= 100 for line in result.stdout.splitlines())


def test_one_route_of_one_region(routing: FakeCollector) -> None:
    """--region and --route select a table; a region may have a short name."""
    routing.tables = tuple(map(rebuilt, TABLES))
    result = run(routing, "routes", "--region", "us-east", "--route", "voice", "--output", "json")
    document = json.loads(result.stdout)
    assert [(row["client_region"], row["route"]) for row in document["rows"]] == [("us-east-2", "voice")]
    assert document["rows"][0]["entries"][0]["ttft_p50_us"]["value"] == 251_900


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--region", "mars"), "unknown client region 'mars'; known: ap-southeast-1, eu-central-1, us-east-2"),
        (("--route", "chatt"), "unknown route 'chatt'; known: chat, voice"),
        (("--region", "us-east-2", "--route", "x"), "unknown route 'x'"),
    ],
)
def test_unknown_names_are_usage_errors(routing: FakeCollector, arguments: tuple[str, ...], named: str) -> None:
    """An unknown region or route is exit code 2 with the known names."""
    result = run(routing, "routes", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--region", "us-east-2"), ("--route", "chat")])
def test_no_table_yet_is_not_a_usage_error(routing: FakeCollector, arguments: tuple[str, ...]) -> None:
    """If there is no table in any region, the exit code is 4 on request and the hint has the conditions of a table."""
    routing.tables = ()
    assert run(routing, "routes", *arguments).exit_code == 0
    result = run(routing, "routes", *arguments, "--exit-code")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "there is no route table yet" in result.stderr
    assert "`routes`" in result.stderr


@pytest.mark.parametrize("table", [EXPIRED, rebuilt(UNKNOWN_YET)])
def test_an_unusable_table_is_shown(routing: FakeCollector, table: RouteTable) -> None:
    """If every table is expired or lacks data, they are shown and the exit code is 4 on request."""
    routing.tables = (table,)
    result = run(routing, "routes", "--region", table.client_region, "--exit-code")
    assert result.exit_code == 4
    assert "use the static order" in result.stdout
    assert "use the static order" in result.stderr


def test_history_prints_the_events(routing: FakeCollector) -> None:
    """Events are printed newest first; without events there is a message and exit code 0."""
    result = run(routing, "routes", "history", "--output", "json")
    assert [row["generation"] for row in json.loads(result.stdout)["rows"]] == [47, 31]
    none = run(routing, "routes", "history", "--route", "none")
    assert (none.exit_code, none.stdout) == (0, "")
    assert "no table changed between" in none.stderr


@pytest.mark.parametrize("words", [("us-east", "chat"), ("chat", "us-east")])
def test_explain_prints_the_steps(routing: FakeCollector, words: tuple[str, str]) -> None:
    """Each step is a sentence, and the result of the repeated decision is printed; region and route in any order."""
    result = run(routing, "explain", *words)
    assert result.exit_code == 0, result.output
    assert "zhipu/glm-5 is left out: 2 of 6 samples needed" in result.stdout
    assert "byte for byte" in result.stdout


def test_explain_gives_programs_the_inputs(routing: FakeCollector) -> None:
    """Programs get the inputs as JSON; a replay that differs is exit code 1, an unknown generation 2."""
    result = run(routing, "explain", "us-east-2", "chat", "--generation", "48", "--output", "json")
    document = json.loads(result.stdout)
    assert document["inputs"]["route"] == {"name": "chat"}
    assert document["before"] == {"incumbent": "deepseek/deepseek-v4-flash"}
    assert document["table"]["generation"] == 48
    assert len(document["steps"]) == len(EXPLANATION.steps)
    routing.explanation = replace(EXPLANATION, replays=False)
    result = run(routing, "explain", "us-east-2", "chat")
    assert result.exit_code == 1
    assert "does NOT give this table" in result.stdout
    assert "does not give generation 48" in result.stderr
    result = run(routing, "explain", "mars", "chat")
    assert (result.exit_code, "unknown client region 'mars'" in result.stderr) == (2, True)
    result = run(routing, "explain", "us-east-2", "chat", "--generation", "7")
    assert result.exit_code == 2
    assert "generation 7 is not known" in result.stderr


def test_watch_prints_each_generation_once_across_breaks(routing: FakeCollector) -> None:
    """The tables in force come first, then each new table; a broken stream resumes after the last generation."""
    routing.tables = (numbered(47, VOICE), numbered(48))
    routing.log = list(routing.tables)
    routing.breaking = [2, 0, 1, 0, 0]
    with started(routing, "routes", "watch", "--output", "json") as process:
        coming = generations_of(process)
        seen = [next(coming) for _ in range(2)]
        for generation in range(49, 54):
            routing.publish(numbered(generation, VOICE if generation % 2 else CHAT))
            seen.append(next(coming))
        stderr = stopped(process)[1]
    assert seen == [47, 48, 49, 50, 51, 52, 53]
    assert "Traceback" not in stderr
    assert "continuing after generation" in stderr


def test_watch_starts_after_a_generation(routing: FakeCollector) -> None:
    """With --after, the missed tables come in order, even those no longer in force."""
    routing.log = [numbered(n) for n in range(40, 49)]
    with started(routing, "routes", "watch", "--region", "us-east-2", "--after", "45", "--output", "json") as process:
        coming = generations_of(process)
        assert [next(coming) for _ in range(3)] == [46, 47, 48]
        stopped(process)


def test_watch_starts_over_after_an_unknown_generation(routing: FakeCollector) -> None:
    """As over HTTP, after a generation that the collector never issued come the tables in force, with a message."""
    with started(routing, "routes", "watch", "--after", "9999", "--output", "json") as process:
        coming = generations_of(process)
        generations = [next(coming) for _ in TABLES]
        stderr = stopped(process)[1]
    assert generations == sorted(table.generation for table in TABLES)
    assert "this collector never issued generation 9999; starting with all tables in force" in stderr


def test_watch_starts_over_on_another_database(routing: FakeCollector) -> None:
    """A collector that lags behind repeats nothing; another database is reported, and its tables in force follow."""
    old = [numbered(104, VOICE), numbered(105)]
    routing.restart(*old)
    with started(routing, "routes", "watch", "--output", "json") as process:
        coming = generations_of(process)
        generations = [next(coming) for _ in old]
        routing.restart(old[0])
        routing.publish(numbered(106))
        generations.append(next(coming))
        near, far = (now_at() + seconds * SECOND_US for seconds in (5, 15))
        routing.restart(replace(numbered(1, VOICE), built_at=near), replace(numbered(2), built_at=far))
        generations += [next(coming) for _ in range(2)]
        stderr = stopped(process)[1]
    assert generations == [104, 105, 106, 1, 2]
    assert "the collector is at generation 1; waiting for generations after 106" in stderr
    assert "generation 2 is newer than 106: this is another database; starting with all tables in force" in stderr


def test_watch_is_a_table_for_people(routing: FakeCollector) -> None:
    """Each generation has a line with instant, region, route, weights and reason, within 100 columns."""
    with started(routing, "routes", "watch", "--route", "voice") as process:
        lines = lines_of(process)
        shown = [next(lines) for _ in range(4)]
        stopped(process)
    assert "generation" in shown[0]
    assert "qwen/qwen3-32b 100 %" in shown[2]
    assert all(cell_len(line) <= 100 for line in shown)


@pytest.mark.parametrize(("more", "generations"), [((), [48, 50]), (("--all",), [48, 49, 50])])
def test_watch_omits_refreshes(routing: FakeCollector, more: tuple[str, ...], generations: list[int]) -> None:
    """A table with new evidence only is omitted without --all, and its generation counts as seen."""
    refreshed = replace(numbered(49), change=ChangeKind.EVIDENCE)
    routing.log = [numbered(48), refreshed, numbered(50)]
    with started(routing, "routes", "watch", "--after", "47", *more, "--output", "json") as process:
        coming = generations_of(process)
        assert [next(coming) for _ in generations] == generations


def test_watch_begins_with_what_is_in_force(routing: FakeCollector) -> None:
    """The tables in force come first, on another database too; later refreshes of them are left out."""
    voice, chat = (replace(numbered(n, of), change=ChangeKind.EVIDENCE) for n, of in ((47, VOICE), (48, CHAT)))
    routing.restart(voice, chat)
    with started(routing, "routes", "watch", "--output", "json") as process:
        coming = generations_of(process)
        seen = [next(coming) for _ in range(2)]
        routing.publish(replace(numbered(49), change=ChangeKind.EVIDENCE))
        routing.publish(replace(numbered(50), change=ChangeKind.SOFT))
        seen.append(next(coming))
        later = now_at() + 15 * SECOND_US
        routing.restart(*(replace(table, generation=n, built_at=later) for n, table in ((1, voice), (2, chat))))
        seen += [next(coming) for _ in range(2)]
    assert seen == [47, 48, 50, 1, 2]


def test_watch_ends_on_unknown_names(routing: FakeCollector) -> None:
    """An unknown region is exit code 2 at once, and an unreachable collector 3."""
    assert run(routing, "routes", "watch", "--region", "mars").exit_code == 2
    assert run("127.0.0.1:1", "routes", "watch").exit_code == 3


def test_options_belong_after_the_subcommand(routing: FakeCollector) -> None:
    """An option before a subcommand would have no effect, so it is refused."""
    assert run(routing, "routes", "--route", "chat", "history").exit_code == 2


SOON = 10.0
LOST = r"; continuing( after generation 50)? when it is back"


def written(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    (table,) = json.loads(file.read_text())["tables"]
    found: dict[str, Any] = table
    return found


def first_of(file: Path) -> str:
    return next((entry["target"] for entry in written(file).get("entries", ()) if entry["weight"] == 1), "")


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_follows_the_generations(routing: FakeCollector, tmp_path: Path, kind: str) -> None:
    """The file of every format is replaced by the next generation, and never has a part of one."""
    routing.restart(fresh(50))
    file = tmp_path / "tables"
    with following(routing.address, file, kind=kind):
        for generation in (50, 51, 52):
            if generation > 50:
                routing.publish(fresh(generation))
            eventually(SOON, lambda: run(routing, *options(file, kind), "--check").exit_code == 0, "a file")
            eventually(SOON, lambda n=generation: str(n) in file.read_text(), f"{generation}")  # type: ignore[misc]


def test_readers_never_see_a_part(routing: FakeCollector, tmp_path: Path) -> None:
    """A reader that opens the file again and again gets a whole document each time."""
    routing.restart(fresh(50))
    file, broken, is_over = tmp_path / "tables.json", list[str](), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            try:
                written(file)
            except ValueError as error:
                broken.append(str(error))

    with following(routing.address, file), ThreadPoolExecutor() as threads:
        reading = threads.submit(read)
        for generation in range(51, 71):
            routing.publish(fresh(generation))
        eventually(SOON, lambda: written(file).get("generation") == 70, "the last generation")
        is_over.set()
        reading.result(SOON)
    assert broken == []
    assert list(tmp_path.glob(".*")) == []


def test_the_file_outlives_the_collector(routing: FakeCollector, tmp_path: Path) -> None:
    """While the collector is away the file stays, and it follows again when the collector is back."""
    routing.restart(fresh(50))
    file = tmp_path / "tables.json"
    with following(routing.address, file) as messages:
        eventually(SOON, lambda: written(file).get("generation") == 50, "the first file")
        routing.breaking = [0, 0, 0]
        routing.restart(*routing.tables)
        # The stream may not have begun when the file is written.
        eventually(SOON, lambda: re.search(LOST, messages.read_text()) is not None, "a message")
        assert written(file)["generation"] == 50
        routing.publish(fresh(51))
        eventually(SOON, lambda: written(file)["generation"] == 51, "the next generation")


def test_a_collector_that_is_away_at_the_start_is_waited_for(routing: FakeCollector, tmp_path: Path) -> None:
    """A machine starts its programs in any order."""
    routing.restart(fresh(50))
    port, file = free_port(), tmp_path / "tables.json"
    with following(f"127.0.0.1:{port}", file) as messages:
        eventually(SOON, lambda: "waiting for it" in messages.read_text(), "a message")
        assert not file.exists()
        with serving(FakeCollector(tables=routing.tables, log=routing.log), port=port):
            eventually(SOON, file.exists, "the first file")


def test_the_first_table_is_waited_for(routing: FakeCollector, tmp_path: Path) -> None:
    """A collector without a table is one that will have one; but a name that it does not know is a mistake."""
    routing.restart()
    file = tmp_path / "tables.json"
    with following(routing.address, file) as messages:
        eventually(SOON, lambda: "no route table yet" in messages.read_text(), "a message")
        assert "waiting for it" in messages.read_text()
        routing.publish(fresh(50))
        eventually(SOON, lambda: written(file).get("generation") == 50, "the first file")
    assert run(routing, *options(file), "--region", "mars", "--follow").exit_code == 2


def test_an_expired_table_becomes_the_static_order(routing: FakeCollector, tmp_path: Path) -> None:
    """At `stale_until` the file has the static order, with no message, and `--check` shows it; the next replaces it."""
    routing.restart(fresh(51, seconds=3))
    file, count = tmp_path / "tables.json", tmp_path / "count"
    with following(routing.address, file, "--exec", f"sh -c 'echo x >> {count}'") as messages:
        eventually(SOON, lambda: first_of(file) == "qwen/qwen3-32b", "the table")
        eventually(SOON, lambda: first_of(file) == "deepseek/deepseek-v4-flash", "the static order")
        assert now_at() >= routing.tables[0].stale_until_at
        assert written(file)["state"] == "insufficient_data"
        result = run(routing, *options(file), "--check")
        assert (result.exit_code, "has the static order of chat" in result.stderr) == (4, True)
        routing.publish(fresh(53))
        eventually(SOON, lambda: first_of(file) == "qwen/qwen3-32b", "the next table")
        eventually(SOON, lambda: count.read_text() == "x\nx\nx\n", "a command for each change")
    assert "chat: no table may be used; the file has the static order" in messages.read_text()


def test_garbage_is_ignored_and_reported(routing: FakeCollector, tmp_path: Path) -> None:
    """A table on which nobody can act is reported, and the last one stays; so does a single export."""
    routing.restart(fresh(50))
    file = tmp_path / "tables.json"
    with following(routing.address, file) as messages:
        eventually(SOON, lambda: written(file).get("generation") == 50, "the first file")
        table = fresh(51)
        routing.publish(replace(table, entries=(replace(table.entries[0], weight=7.0), *table.entries[1:])))
        eventually(SOON, lambda: "chat: generation 51 is ignored: the weights" in messages.read_text(), "a message")
        assert written(file)["generation"] == 50
        result = run(routing, *options(file))
        assert (result.exit_code, "chat is left out: the weights" in result.stderr) == (1, True), result.output
        routing.publish(fresh(52))
        eventually(SOON, lambda: written(file)["generation"] == 52, "the next generation")


def test_the_command_runs_after_changes_only(routing: FakeCollector, tmp_path: Path) -> None:
    """It runs after the first file and after another routing, but not after new numbers; the file is there by then."""
    routing.restart(fresh(50))
    file, log = tmp_path / "tables.json", tmp_path / "log"
    with following(routing.address, file, "--exec", f"cp {file} {log}"):
        eventually(SOON, lambda: written(log).get("generation") == 50, "after the first file")
        routing.publish(fresh(52))
        eventually(SOON, lambda: written(file)["generation"] == 52, "the next file")
        assert written(log)["generation"] == 50
        routing.publish(fresh(53))
        eventually(SOON, lambda: written(log)["generation"] == 53, "after the change")


def test_the_command_is_run_without_a_shell(routing: FakeCollector, tmp_path: Path) -> None:
    """Quotes are those of a shell; redirections, variables and further commands are plain words."""
    routing.restart(fresh(50))
    file, words = tmp_path / "tables.json", tmp_path / "words"
    (tmp_path / "print").write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word" >> {words}; done\n')
    (tmp_path / "print").chmod(0o755)
    command = f"{tmp_path / 'print'} 'two words' $HOME ; touch {tmp_path / 'harm'} > out `id`"
    with following(routing.address, file, "--exec", command):
        eventually(SOON, lambda: words.exists() and words.read_text().count("\n") == 8, "the words")
    assert words.read_text().split("\n")[:3] == ["two words", "$HOME", ";"]
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("command", ["false", "/nowhere/command"])
def test_a_failing_command_is_reported_and_ends_nothing(routing: FakeCollector, tmp_path: Path, command: str) -> None:
    """The file is followed although the command fails or does not exist."""
    routing.restart(fresh(50))
    file = tmp_path / "tables.json"
    with following(routing.address, file, "--exec", command) as messages:
        eventually(SOON, lambda: f"the command {command} failed" in messages.read_text(), "a message")
        routing.publish(fresh(51))
        eventually(SOON, lambda: written(file)["generation"] == 51, "the next generation")


def test_a_folder_that_is_gone_ends_nothing(routing: FakeCollector, tmp_path: Path) -> None:
    """A file that cannot be written is reported, and is written when it can be."""
    routing.restart(fresh(50))
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "tables.json"
    with following(routing.address, tmp_path / "unused.json", "--file", str(file)) as messages:
        eventually(SOON, lambda: written(file).get("generation") == 50, "the first file")
        folder.rename(tmp_path / "away")
        routing.publish(fresh(51))
        eventually(SOON, lambda: "the last file stays" in messages.read_text(), "a message")
        (tmp_path / "away").rename(folder)
        eventually(SOON, lambda: written(file)["generation"] == 51, "the next generation")


def test_a_new_plan_removes_a_route(routing: FakeCollector, tmp_path: Path) -> None:
    """A route that the plan no longer has leaves the file with the first table of the new plan."""
    routing.restart(fresh(50), replace(fresh(50), route="code", generation=49))
    file = tmp_path / "tables.json"
    with following(routing.address, file):
        eventually(SOON, lambda: file.exists() and len(json.loads(file.read_text())["tables"]) == 2, "both routes")
        table = fresh(52)
        routing.tables = tuple(one for one in routing.tables if one.route == "chat")
        routing.publish(replace(table, provenance=replace(table.provenance, plan_version=4)))
        eventually(SOON, lambda: len(json.loads(file.read_text())["tables"]) == 1, "one route")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--exec", "true"), "--exec needs --follow"),
        (("--follow", "--check"), "--check does not go with --follow"),
        (("--follow", "--file", "-"), "--follow needs a file"),
        (("--check", "--file", "-"), "--check needs a file"),
        (("--follow", "--exec", "echo 'a"), "cannot split"),
        (("--follow", "--exec", " "), "no command is named"),
    ],
)
def test_options_that_do_not_fit(routing: FakeCollector, tmp_path: Path, more: tuple[str, ...], sentence: str) -> None:
    """Options without an effect, and a command that is none, are usage errors."""
    result = run(routing, *options(tmp_path / "tables.json"), *more)
    assert (result.exit_code, sentence in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    ("seconds", "exit_code", "sentence"),
    [(3590, 0, "has generation 50, usable for 59 min"), (-400, 1, "expired 6 min ago: chat")],
)
def test_check_reads_the_file_only(
    routing: FakeCollector, tmp_path: Path, seconds: int, exit_code: int, sentence: str
) -> None:
    """The collector may be away; a file that was not replaced when it expired is exit code 1."""
    routing.restart(fresh(50))
    file = tmp_path / "tables.json"
    assert run(routing, *options(file)).exit_code == 0
    stale = rfc3339(now_at() + seconds * SECOND_US)
    file.write_text(file.read_text().replace(written(file)["stale_until_at"], stale))
    routing.address = "127.0.0.1:1"
    result = run(routing, *options(file), "--check")
    assert (result.exit_code, sentence in result.output) == (exit_code, True), result.output


@pytest.mark.parametrize("content", [None, "", "{}", '{"tables": []}', "[1]", '{"tables": [{"generation": 1}]}'])
def test_check_of_what_is_no_export(routing: FakeCollector, tmp_path: Path, content: str | None) -> None:
    """A missing file, and one with something else, is exit code 1 and one sentence."""
    file = tmp_path / "tables.json"
    if content is not None:
        file.write_text(content)
    result = run(routing, *options(file), "--check")
    assert result.exit_code == 1
    assert ("cannot read" if content is None else "is no json export") in result.stderr


def test_portkey_keeps_its_limit(routing: FakeCollector, tmp_path: Path) -> None:
    """A config that has grown too large is reported, and the last file stays."""
    routing.restart(fresh(50))
    file = tmp_path / "tables.json"
    with following(routing.address, file, kind="portkey") as messages:
        eventually(SOON, file.exists, "the first file")
        long = replace(VOICE.entries[0], base_url="https://x.example/" + 9000 * "y")
        routing.publish(replace(fresh(51), entries=(long,)))
        eventually(SOON, lambda: "too large: 9" in messages.read_text(), "a message")
        assert "yyy" not in file.read_text()


PAGE = section("gateways.md", "Files")


def test_the_commands_of_the_page(routing: FakeCollector, tmp_path: Path) -> None:
    """The exports are written; the followed file reaches the command; the check prints the sentence of the page."""
    once, followed, check = blocks_of(PAGE)
    (tmp_path / "isochrone").write_text(f'#!/bin/sh\nexec {sys.executable} -m isochrone_client "$@"\n')
    (tmp_path / "isochrone").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ISOCHRONE_COLLECTOR": routing.address}
    routing.restart(fresh(48, seconds=1795))

    def shell_run(block: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert json.loads(shell_run(once))["strategy"]["mode"] == "conditional"
    assert {path.name for path in tmp_path.glob("*.*")} == {"litellm.yaml", "routes.json", "routes.clusters.json"}
    with subprocess.Popen(
        ["bash", "-c", f"{followed}wait"], cwd=tmp_path, env=environment, start_new_session=True
    ) as shell:
        try:
            eventually(20, (tmp_path / "applied.json").exists, "the command")
            (sentence,) = re.findall(r"```\n(tables.json has .*)\n```", PAGE)
            assert shell_run(check).strip() == sentence
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
