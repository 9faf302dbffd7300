"""`isochrone status` of a real collector: too young, all well, and a step that `diff` knows."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from fixtures.collector import Collector, StartCollector
from isochrone_client.cli import cli
from isochrone_client.window import now_at
from isochrone_wire.json_format import rfc3339
from testdata.pushed_rounds import FIRST, PLAN, SG, US, Fleet, rounds_until, usual_latencies
from testdata.waiting import eventually

SLOWER_US = 400_000


def ask(collector: Collector, folder: Path, *words: str) -> Result:
    environment = {"ISOCHRONE_COLLECTOR": collector.http_address, "XDG_CONFIG_HOME": str(folder)}
    return CliRunner().invoke(cli, words, env=environment, prog_name="isochrone")


def slower(target: str, region: str) -> int | None:
    usual_us = usual_latencies(target, region)
    return usual_us + SLOWER_US if usual_us and (target, region) == (FIRST, SG) else usual_us


def document(collector: Collector, folder: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(collector, folder, *words, "--output", "json").stdout)
    return found


def test_from_too_young_to_a_step(start_collector: StartCollector, tmp_path: Path) -> None:
    """Eight rounds are too few; forty are all well; eight slower ones are the finding that `diff` shows, with its
    beginning, size and interval. The exit code is that of the verdict.
    """
    collector = start_collector()
    assert ask(collector, tmp_path, "status").stdout == "too young: nothing was measured yet\n"
    assert collector.call.apply(PLAN).problems == ()
    fleet = Fleet({target.name: target.id for target in collector.call.targets().targets})
    rounds = rounds_until(now_at(), 48)

    fleet.push_rounds(collector.call, rounds[32:40])
    eventually(30, lambda: "6 of 6 pairs" in ask(collector, tmp_path, "status").stdout, "its rounds are too few")
    result = ask(collector, tmp_path, "status", "--exit-code")
    assert (result.exit_code, result.stdout.partition(":")[0]) == (4, "too young")
    assert "it is too early to judge" in result.stderr

    fleet.push_rounds(collector.call, rounds[:32])
    eventually(30, lambda: "all well" in ask(collector, tmp_path, "status").stdout, "all is well")
    result = ask(collector, tmp_path, "status", "--exit-code")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("all well: 3 targets from 2 regions in the last ")
    assert result.stdout.count("\n") == 1

    fleet.push_rounds(collector.call, rounds[40:], slower)
    eventually(30, lambda: ask(collector, tmp_path, "status").exit_code == 5, "the step is a finding")
    (finding,) = document(collector, tmp_path, "status")["rows"]
    assert (finding["kind"], finding["target"], finding["regions"]) == ("slower", FIRST, [SG])
    assert finding["since_at"] == rfc3339(rounds[40])
    row = next(one for one in document(collector, tmp_path, "diff", "--target", FIRST)["rows"] if one["region"] == SG)
    assert row["since_at"] == finding["since_at"]
    assert [row[name] for name in ("shift", "shift_low", "shift_high", "n")] == [
        finding[name] for name in ("shift", "shift_low", "shift_high", "n")
    ]
    assert finding["baseline"] == US
    states = document(collector, tmp_path, "status")["states"]
    assert {(one["target"], one["region"]) for one in states if one["state"] != "ok"} == {(FIRST, SG)}
