"""The commands for route tables against a real socket: show, watch, history and explain, with their exit codes."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from fixtures.fake_collector import FakeCollector
from isochrone_client.cli import cli
from isochrone_client.window import now_at
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import ChangeKind, RouteTable
from testdata.preforked import Program
from testdata.routes import CHAT, EXPIRED, EXPLANATION, TABLES, UNKNOWN_YET, VOICE

PATIENCE = 30.0


def run(routing: FakeCollector, *arguments: str) -> Result:
    """Run the command in this process against the fake."""
    environment = {"ISOCHRONE_COLLECTOR": routing.address}
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="isochrone")


@contextmanager
def started(routing: FakeCollector, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The command as a separate process with pipes, killed at the end of the block."""
    with Program[bytes](
        "isochrone_client",
        *arguments,
        env={**os.environ, "ISOCHRONE_COLLECTOR": routing.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


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


def fresh(table: RouteTable, **changes: object) -> RouteTable:
    """The table as if built now."""
    now = now_at()
    instants = {"built_at": now, "fresh_until_at": now + HOUR_US, "stale_until_at": now + 2 * HOUR_US}
    return replace(table, **{**instants, **changes})  # type: ignore[arg-type]  # fields by name


def numbered(generation: int, table: RouteTable = CHAT) -> RouteTable:
    """The table under another generation."""
    return fresh(table, generation=generation, etag=f"{generation}-0")


def test_every_region_is_shown(routing: FakeCollector) -> None:
    """Without --region the tables of all regions are shown, by region and route, within 100 columns."""
    routing.tables = tuple(map(fresh, TABLES))
    result = run(routing, "routes")
    assert (result.exit_code, result.stderr) == (0, "")
    for table in TABLES:
        assert f"{table.route} from {table.client_region}: " in result.stdout
    assert all(cell_len(line) <= 100 for line in result.stdout.splitlines())


def test_one_route_of_one_region(routing: FakeCollector) -> None:
    """--region and --route select a table; a region may have a short name."""
    routing.tables = tuple(map(fresh, TABLES))
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


@pytest.mark.parametrize("table", [EXPIRED, fresh(UNKNOWN_YET)])
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


def test_explain_prints_the_steps(routing: FakeCollector) -> None:
    """Each step is a sentence, and the result of the repeated decision is printed."""
    result = run(routing, "explain", "us-east", "chat")
    assert result.exit_code == 0, result.output
    assert "zhipu/glm-5 is left out: 2 of 6 samples needed" in result.stdout
    assert "byte for byte" in result.stdout


def test_explain_gives_programs_the_inputs(routing: FakeCollector) -> None:
    """Programs get the stored inputs and state as JSON, not as text in JSON."""
    result = run(routing, "explain", "us-east-2", "chat", "--generation", "48", "--output", "json")
    document = json.loads(result.stdout)
    assert document["inputs"]["route"] == {"name": "chat"}
    assert document["before"] == {"incumbent": "deepseek/deepseek-v4-flash"}
    assert document["table"]["generation"] == 48
    assert len(document["steps"]) == len(EXPLANATION.steps)


def test_a_decision_that_cannot_be_replayed_is_a_failure(routing: FakeCollector) -> None:
    """If the repeated decision differs, that is printed and the exit code is 1."""
    routing.explanation = replace(EXPLANATION, replays=False)
    result = run(routing, "explain", "us-east-2", "chat")
    assert result.exit_code == 1
    assert "does NOT give this table" in result.stdout
    assert "does not give generation 48" in result.stderr


def test_an_unknown_generation_is_a_usage_error(routing: FakeCollector) -> None:
    """A generation that is not stored is exit code 2."""
    result = run(routing, "explain", "us-east-2", "chat", "--generation", "7")
    assert result.exit_code == 2
    assert "generation 7 is not known" in result.stderr


def test_watch_prints_each_generation_once_across_breaks(routing: FakeCollector) -> None:
    """The tables in force come first, then each new table; a broken stream resumes after the last generation."""
    routing.tables = (numbered(47, VOICE), numbered(48))
    routing.log = list(routing.tables)
    routing.breaking = [2, 0, 1, 0, 0]
    with started(routing, "routes", "watch", "--output", "json") as process:
        lines = lines_of(process)
        seen = [json.loads(next(lines))["generation"] for _ in range(2)]
        for generation in range(49, 54):
            routing.publish(numbered(generation, VOICE if generation % 2 else CHAT))
            seen.append(json.loads(next(lines))["generation"])
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        stderr = process.stderr.read().decode()
    assert seen == [47, 48, 49, 50, 51, 52, 53]
    assert "Traceback" not in stderr
    assert "continuing after generation" in stderr


def test_watch_starts_after_a_generation(routing: FakeCollector) -> None:
    """With --after, the missed tables come in order, even those no longer in force."""
    routing.log = [numbered(n) for n in range(40, 49)]
    with started(routing, "routes", "watch", "--region", "us-east-2", "--after", "45", "--output", "json") as process:
        lines = lines_of(process)
        assert [json.loads(next(lines))["generation"] for _ in range(3)] == [46, 47, 48]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_watch_starts_over_after_an_unknown_generation(routing: FakeCollector) -> None:
    """As over HTTP, after a generation that the collector never issued come the tables in force, with a message."""
    with started(routing, "routes", "watch", "--after", "9999", "--output", "json") as process:
        lines = lines_of(process)
        generations = [json.loads(next(lines))["generation"] for _ in TABLES]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        stderr = process.stderr.read().decode()
    assert generations == sorted(table.generation for table in TABLES)
    assert "this collector never issued generation 9999; starting with all tables in force" in stderr


def test_watch_starts_over_on_another_database(routing: FakeCollector) -> None:
    """A collector that lags behind repeats nothing; another database is reported, and its tables in force follow."""
    old = [numbered(104, VOICE), numbered(105)]
    routing.restart(*old)
    with started(routing, "routes", "watch", "--output", "json") as process:
        lines = lines_of(process)
        generations = [json.loads(next(lines))["generation"] for _ in old]
        routing.restart(old[0])
        routing.publish(numbered(106))
        generations.append(json.loads(next(lines))["generation"])
        near, far = (now_at() + seconds * SECOND_US for seconds in (5, 15))
        routing.restart(replace(numbered(1, VOICE), built_at=near), replace(numbered(2), built_at=far))
        generations += [json.loads(next(lines))["generation"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        stderr = process.stderr.read().decode()
    assert generations == [104, 105, 106, 1, 2]
    assert "the collector is at generation 1; waiting for generations after 106" in stderr
    assert "generation 2 is newer than 106: this is another database; starting with all tables in force" in stderr


def test_watch_is_a_table_for_people(routing: FakeCollector) -> None:
    """Each generation has a line with instant, region, route, weights and reason, within 100 columns."""
    with started(routing, "routes", "watch", "--route", "voice") as process:
        lines = lines_of(process)
        shown = [next(lines) for _ in range(4)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert "generation" in shown[0]
    assert "qwen/qwen3-32b 100 %" in shown[2]
    assert all(cell_len(line) <= 100 for line in shown)


def test_watch_can_omit_refreshes(routing: FakeCollector) -> None:
    """With --moves a table with new evidence only is omitted, and its generation counts as seen."""
    refreshed = replace(numbered(49), change=ChangeKind.EVIDENCE)
    routing.log = [numbered(48), refreshed, numbered(50)]
    with started(routing, "routes", "watch", "--after", "47", "--moves", "--output", "json") as process:
        lines = lines_of(process)
        assert [json.loads(next(lines))["generation"] for _ in range(2)] == [48, 50]


def test_moves_begin_with_what_is_in_force(routing: FakeCollector) -> None:
    """With --moves the tables in force come first, even refreshed ones, on another database too; later refreshes of
    them are left out.
    """
    voice, chat = (replace(numbered(n, of), change=ChangeKind.EVIDENCE) for n, of in ((47, VOICE), (48, CHAT)))
    routing.restart(voice, chat)
    with started(routing, "routes", "watch", "--moves", "--output", "json") as process:
        lines = lines_of(process)
        seen = [json.loads(next(lines))["generation"] for _ in range(2)]
        routing.publish(replace(numbered(49), change=ChangeKind.EVIDENCE))
        routing.publish(replace(numbered(50), change=ChangeKind.SOFT))
        seen.append(json.loads(next(lines))["generation"])
        later = now_at() + 15 * SECOND_US
        routing.restart(*(replace(table, generation=n, built_at=later) for n, table in ((1, voice), (2, chat))))
        seen += [json.loads(next(lines))["generation"] for _ in range(2)]
    assert seen == [47, 48, 50, 1, 2]


def test_watch_ends_on_unknown_names(routing: FakeCollector) -> None:
    """An unknown region is exit code 2 at once, and an unreachable collector 3."""
    assert run(routing, "routes", "watch", "--region", "mars").exit_code == 2
    gone = CliRunner().invoke(cli, ["routes", "watch"], env={"ISOCHRONE_COLLECTOR": "127.0.0.1:1"})
    assert gone.exit_code == 3


def test_options_belong_after_the_subcommand(routing: FakeCollector) -> None:
    """An option before a subcommand would have no effect, so it is refused."""
    assert run(routing, "routes", "--route", "chat", "history").exit_code == 2
