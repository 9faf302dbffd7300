"""`isochrone routes export --follow` and `--check`: real files and processes, and a collector that comes and goes."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fixtures.fake_collector import FakeCollector, serving
from isochrone_client.cli import cli
from isochrone_client.gateways import FORMATS
from isochrone_client.window import now_at
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable
from testdata.commands import following, options
from testdata.ports import free_port
from testdata.routes import VOICE, fresh
from testdata.waiting import eventually

PATIENCE = 10.0
LOST = r"; continuing( after generation 50)? when it is back"


def run(routing: FakeCollector, *arguments: str) -> Result:
    """Run the command in this process against the fake."""
    return CliRunner().invoke(cli, arguments, env={"ISOCHRONE_COLLECTOR": routing.address}, prog_name="isochrone")


def written(file: Path) -> dict[str, Any]:
    """The only table of the file; empty if there is none yet."""
    if not file.exists():
        return {}
    (table,) = json.loads(file.read_text())["tables"]
    found: dict[str, Any] = table
    return found


def first_of(file: Path) -> str:
    """The member with all the weight."""
    return next((entry["target"] for entry in written(file).get("entries", ()) if entry["weight"] == 1), "")


def serve(routing: FakeCollector, *tables: RouteTable) -> None:
    routing.restart(*tables)


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_follows_the_generations(routing: FakeCollector, tmp_path: Path, kind: str) -> None:
    """The file of every format is replaced by the next generation, and never has a part of one."""
    serve(routing, fresh(50))
    file = tmp_path / "tables"
    with following(routing.address, file, kind=kind):
        for generation in (50, 51, 52):
            if generation > 50:
                routing.publish(fresh(generation))
            eventually(PATIENCE, lambda: run(routing, *options(file, kind), "--check").exit_code == 0, "a file")
            eventually(PATIENCE, lambda n=generation: str(n) in file.read_text(), f"{generation}")  # type: ignore[misc]


def test_readers_never_see_a_part(routing: FakeCollector, tmp_path: Path) -> None:
    """A reader that opens the file again and again gets a whole document each time."""
    serve(routing, fresh(50))
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
        eventually(PATIENCE, lambda: written(file).get("generation") == 70, "the last generation")
        is_over.set()
        reading.result(PATIENCE)
    assert broken == []
    assert list(tmp_path.glob(".*")) == []


def test_the_file_outlives_the_collector(routing: FakeCollector, tmp_path: Path) -> None:
    """While the collector is away the file stays, and it follows again when the collector is back."""
    serve(routing, fresh(50))
    file = tmp_path / "tables.json"
    with following(routing.address, file) as messages:
        eventually(PATIENCE, lambda: written(file).get("generation") == 50, "the first file")
        routing.breaking = [0, 0, 0]
        routing.restart(*routing.tables)
        # The stream may not have begun when the file is written.
        eventually(PATIENCE, lambda: re.search(LOST, messages.read_text()) is not None, "a message")
        assert written(file)["generation"] == 50
        routing.publish(fresh(51))
        eventually(PATIENCE, lambda: written(file)["generation"] == 51, "the next generation")


def test_a_collector_that_is_away_at_the_start_is_waited_for(routing: FakeCollector, tmp_path: Path) -> None:
    """A machine starts its programs in any order."""
    serve(routing, fresh(50))
    port, file = free_port(), tmp_path / "tables.json"
    with following(f"127.0.0.1:{port}", file) as messages:
        eventually(PATIENCE, lambda: "waiting for it" in messages.read_text(), "a message")
        assert not file.exists()
        with serving(FakeCollector(tables=routing.tables, log=routing.log), port=port):
            eventually(PATIENCE, file.exists, "the first file")


def test_the_first_table_is_waited_for(routing: FakeCollector, tmp_path: Path) -> None:
    """A collector without a table is one that will have one; but a name that it does not know is a mistake."""
    serve(routing)
    file = tmp_path / "tables.json"
    with following(routing.address, file) as messages:
        eventually(PATIENCE, lambda: "no route table yet" in messages.read_text(), "a message")
        assert "waiting for it" in messages.read_text()
        routing.publish(fresh(50))
        eventually(PATIENCE, lambda: written(file).get("generation") == 50, "the first file")
    assert run(routing, *options(file), "--region", "mars", "--follow").exit_code == 2


def test_an_expired_table_becomes_the_static_order(routing: FakeCollector, tmp_path: Path) -> None:
    """At `stale_until` the file has the static order, without any message of the collector, and `--check` shows it; the
    next table takes its place.
    """
    serve(routing, fresh(51, seconds=3))
    file, count = tmp_path / "tables.json", tmp_path / "count"
    with following(routing.address, file, "--exec", f"sh -c 'echo x >> {count}'") as messages:
        eventually(PATIENCE, lambda: first_of(file) == "qwen/qwen3-32b", "the table")
        eventually(PATIENCE, lambda: first_of(file) == "deepseek/deepseek-v4-flash", "the static order")
        assert now_at() >= routing.tables[0].stale_until_at
        assert written(file)["state"] == "insufficient_data"
        result = run(routing, *options(file), "--check")
        assert (result.exit_code, "has the static order of chat" in result.stderr) == (4, True)
        routing.publish(fresh(53))
        eventually(PATIENCE, lambda: first_of(file) == "qwen/qwen3-32b", "the next table")
        eventually(PATIENCE, lambda: count.read_text() == "x\nx\nx\n", "a command for each change")
    assert "chat: no table may be used; the file has the static order" in messages.read_text()


def test_garbage_is_ignored_and_reported(routing: FakeCollector, tmp_path: Path) -> None:
    """A table on which nobody can act is reported, and the last one stays; so does a single export."""
    serve(routing, fresh(50))
    file = tmp_path / "tables.json"
    with following(routing.address, file) as messages:
        eventually(PATIENCE, lambda: written(file).get("generation") == 50, "the first file")
        table = fresh(51)
        routing.publish(replace(table, entries=(replace(table.entries[0], weight=7.0), *table.entries[1:])))
        eventually(PATIENCE, lambda: "chat: generation 51 is ignored: the weights" in messages.read_text(), "a message")
        assert written(file)["generation"] == 50
        result = run(routing, *options(file))
        assert (result.exit_code, "chat is left out: the weights" in result.stderr) == (1, True), result.output
        routing.publish(fresh(52))
        eventually(PATIENCE, lambda: written(file)["generation"] == 52, "the next generation")


def test_the_command_runs_after_changes_only(routing: FakeCollector, tmp_path: Path) -> None:
    """It runs after the first file and after another routing, but not after new numbers; the file is there by then."""
    serve(routing, fresh(50))
    file, log = tmp_path / "tables.json", tmp_path / "log"
    with following(routing.address, file, "--exec", f"cp {file} {log}"):
        eventually(PATIENCE, lambda: written(log).get("generation") == 50, "after the first file")
        routing.publish(fresh(52))
        eventually(PATIENCE, lambda: written(file)["generation"] == 52, "the next file")
        assert written(log)["generation"] == 50
        routing.publish(fresh(53))
        eventually(PATIENCE, lambda: written(log)["generation"] == 53, "after the change")


def test_the_command_is_run_without_a_shell(routing: FakeCollector, tmp_path: Path) -> None:
    """Quotes are those of a shell; redirections, variables and further commands are plain words."""
    serve(routing, fresh(50))
    file, words = tmp_path / "tables.json", tmp_path / "words"
    (tmp_path / "print").write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word" >> {words}; done\n')
    (tmp_path / "print").chmod(0o755)
    command = f"{tmp_path / 'print'} 'two words' $HOME ; touch {tmp_path / 'harm'} > out `id`"
    with following(routing.address, file, "--exec", command):
        eventually(PATIENCE, lambda: words.exists() and words.read_text().count("\n") == 8, "the words")
    assert words.read_text().split("\n")[:3] == ["two words", "$HOME", ";"]
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("command", ["false", "/nowhere/command"])
def test_a_failing_command_is_reported_and_ends_nothing(routing: FakeCollector, tmp_path: Path, command: str) -> None:
    """The file is followed although the command fails or does not exist."""
    serve(routing, fresh(50))
    file = tmp_path / "tables.json"
    with following(routing.address, file, "--exec", command) as messages:
        eventually(PATIENCE, lambda: f"the command {command} failed" in messages.read_text(), "a message")
        routing.publish(fresh(51))
        eventually(PATIENCE, lambda: written(file)["generation"] == 51, "the next generation")


def test_a_folder_that_is_gone_ends_nothing(routing: FakeCollector, tmp_path: Path) -> None:
    """A file that cannot be written is reported, and is written when it can be."""
    serve(routing, fresh(50))
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "tables.json"
    with following(routing.address, tmp_path / "unused.json", "--file", str(file)) as messages:
        eventually(PATIENCE, lambda: written(file).get("generation") == 50, "the first file")
        folder.rename(tmp_path / "away")
        routing.publish(fresh(51))
        eventually(PATIENCE, lambda: "the last file stays" in messages.read_text(), "a message")
        (tmp_path / "away").rename(folder)
        eventually(PATIENCE, lambda: written(file)["generation"] == 51, "the next generation")


def test_a_new_plan_removes_a_route(routing: FakeCollector, tmp_path: Path) -> None:
    """A route that the plan no longer has leaves the file with the first table of the new plan."""
    serve(routing, fresh(50), replace(fresh(50), route="code", generation=49))
    file = tmp_path / "tables.json"
    with following(routing.address, file):
        eventually(PATIENCE, lambda: file.exists() and len(json.loads(file.read_text())["tables"]) == 2, "both routes")
        table = fresh(52)
        routing.tables = tuple(one for one in routing.tables if one.route == "chat")
        routing.publish(replace(table, provenance=replace(table.provenance, plan_version=4)))
        eventually(PATIENCE, lambda: len(json.loads(file.read_text())["tables"]) == 1, "one route")


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


def test_an_unknown_region_ends_it_at_once(routing: FakeCollector, tmp_path: Path) -> None:
    """What the collector refuses at the start is exit code 2, with the known names."""
    result = run(routing, *options(tmp_path / "tables.json"), "--region", "mars", "--follow")
    assert (result.exit_code, "unknown client region 'mars'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("seconds", "exit_code", "sentence"),
    [(3590, 0, "has generation 50, usable for 59 min"), (-400, 1, "expired 6 min ago: chat")],
)
def test_check_reads_the_file_only(
    routing: FakeCollector, tmp_path: Path, seconds: int, exit_code: int, sentence: str
) -> None:
    """The collector may be away; a file that was not replaced when it expired is exit code 1."""
    serve(routing, fresh(50))
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
    serve(routing, fresh(50))
    file = tmp_path / "tables.json"
    with following(routing.address, file, kind="portkey") as messages:
        eventually(PATIENCE, file.exists, "the first file")
        long = replace(VOICE.entries[0], base_url="https://x.example/" + 9000 * "y")
        routing.publish(replace(fresh(51), entries=(long,)))
        eventually(PATIENCE, lambda: "too large: 9" in messages.read_text(), "a message")
        assert "yyy" not in file.read_text()
