"""`make first-sight`: what a new user sees of the demo, and whether it is complete and agrees with itself.

The demo runs on a quiet machine, and then with a busy process on each core. At 10, 30, 60 and 180 s after its first
round, the answers of the command line, of the page and of `isochrone report --file` are compared as data, for one
window. From the first round on, the page's answers are read every two seconds, which is a round of the demo.

`cells_pct` is the share of cells, target by region, that have a value in each answer from the third round on; targets
that are throttled are left out, and printed. A contradiction is one of these, and is printed:

1. A p95 without a p50, or a value that differs between two surfaces though both count the same samples.
2. A decided row whose difference has another sign than its medians or its decision.
3. A status of "well" while an incident is open, or a finding that has another sign than the row of `diff`.

`status_lag_rounds` is the time from the row of `diff` that knows the slowdown of the demo to the finding in `status`.
`first_line_s` runs from the start of `make demo`, `first_table_s` from the first round to a table with a value in each
row. `install_mb` is the size of what `[collector,embedded]` installs.

The world is the simulator's: nothing in it is throttled, times out or fails, and all clocks are right.

usage: python -m first_hour.sight [--part idle|busy] prints contradictions and a RESULT line; exit 1 when a goal is
missed
"""

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from packaging.requirements import Requirement

from bench.neighbours import add_part, goals_of, measured, prefixes_of
from bench.processes import exit_on_sigterm
from bench.result import at_least, at_most, conclude, log
from first_hour.newcomer import Newcomer

ROOT = Path(__file__).resolve().parents[2]
PAGE = "http://127.0.0.1:4680"
LOOKS_S = (10, 30, 60, 180)
DEMO_S, START_S, END_S = 240, 120.0, 60.0
ROUND_S = 2.0
THIRD_ROUND_S = 3 * ROUND_S
# The demo makes a target slower by 400 ms.
SLOWDOWN_US = 200_000
# Values that stand for the same samples are equal but for the rounding of their last digits.
SAME = 1e-6
COUNTS = ("n", "failed", "baseline_n", "region_n")
VALUES = ("ttft_p50_us", "ttft_p95_us", "e2e_p50_us", "baseline_median", "region_median", "shift", "decision")
GOALS = {
    "cells_pct": at_least(95),
    "contradictions": at_most(0),
    "status_lag_rounds": at_most(3),
    "first_line_s": at_most(2),
    "first_table_s": at_most(60),
}
Row = Mapping[str, Any]


@dataclass(slots=True)
class Sight:
    """What was seen of one demo; instants are seconds since the epoch."""

    lines: list[tuple[float, str]] = field(default_factory=list)
    cells: list[tuple[int, int]] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    first_round_at: float = float("nan")
    diff_knew_at: float = float("nan")
    status_knew_at: float = float("nan")

    def note(self, where: str, found: Iterable[str]) -> None:
        """Note contradictions, each of them once, and print them."""
        for sentence in found:
            if sentence not in self.contradictions:
                self.contradictions.append(sentence)
                log(f"CONTRADICTION {where}: {sentence}")

    @property
    def first_table_at(self) -> float:
        """When the last row of the first table was printed in which each target has a value."""
        rows: list[bool] = []
        for at, line in self.lines:
            if found := re.match(r"\w+/\S+ +(\S)", line):
                rows.append(found[1].isdigit())
            elif rows:
                if all(rows):
                    return at
                rows.clear()
        return float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(description="What a new user sees of the demo.")
    add_part(parser)
    prefixes = prefixes_of(parser.parse_args())
    figures: dict[str, Any] = measured(prefixes, lambda _: _figures())
    figures["install_mb"] = installed_bytes("isochrone", "collector", "embedded") / 1e6
    return conclude(figures, goals_of(prefixes, GOALS))


def _figures() -> dict[str, float]:
    sight, begun_at = Sight(), time.time()
    with tempfile.TemporaryDirectory() as home:
        newcomer = Newcomer(ROOT, Path(home))
        with _demo(newcomer, sight), httpx.Client(base_url=PAGE, timeout=30) as page:
            sight.first_round_at = _first_round_at(page)
            looks = deque(sight.first_round_at + seconds for seconds in LOOKS_S)
            while looks:
                follow(page, sight)
                if time.time() >= looks[0]:
                    _look(newcomer, page, sight, f"after {looks.popleft() - sight.first_round_at:.0f} s")
                time.sleep(max(0.0, ROUND_S - (time.time() - sight.first_round_at) % ROUND_S))
    complete, cells = map(sum, zip(*sight.cells, strict=True))
    return {
        "cells_pct": 100 * complete / cells,
        "contradictions": float(len(sight.contradictions)),
        "status_lag_rounds": (sight.status_knew_at - sight.diff_knew_at) / ROUND_S,
        "first_line_s": sight.lines[0][0] - begun_at,
        "first_table_s": sight.first_table_at - sight.first_round_at,
    }


@contextmanager
def _demo(newcomer: Newcomer, sight: Sight) -> Iterator[None]:
    """Run the demo during the block, and note the lines that it prints."""
    command = ["make", "--no-print-directory", "demo", f"ARGS=--for {DEMO_S}s"]
    environment, pipe, same = os.environ | newcomer.environment, subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=pipe, stderr=same) as process:
        reader = threading.Thread(
            target=lambda: sight.lines.extend((time.time(), line) for line in process.stdout or ())
        )
        reader.start()
        try:
            yield
        finally:
            process.terminate()
            process.wait(END_S)
            reader.join()


def _first_round_at(page: httpx.Client) -> float:
    until = time.time() + START_S
    while time.time() < until:
        with suppress(httpx.TransportError):
            rows = page.get("/v1/coverage", params={"window": "1h"}).json().get("rows", [])
            if found := [row["oldest_at"] for row in rows if row["oldest_at"]]:
                return min(map(_instant, found))
        time.sleep(0.2)
    raise SystemExit("the demo has no round")


def follow(page: httpx.Client, sight: Sight) -> None:
    """Read what the page reads, and note what is missing or contradicts, and when the slowdown is known."""
    now = time.time()
    diff, status, leaderboard = (_rows(page, f"/v1/{name}") for name in ("diff", "status", "leaderboard"))
    if now >= sight.first_round_at + THIRD_ROUND_S:
        throttled = {row["target"] for row in leaderboard if row["throttled"]}
        if throttled:
            log(f"throttled, and left out: {', '.join(sorted(throttled))}")
        for rows, value in ((leaderboard, _has_median), (diff, lambda row: row["shift"] is not None)):
            counted = [value(row) for row in rows if row["target"] not in throttled]
            sight.cells.append((sum(counted), len(counted)))
    slowed = {(row["target"], row["region"]) for row in diff if row["since_at"] and row["shift"] >= SLOWDOWN_US}
    named = {(row["target"], region) for row in status if row["kind"] == "slower" for region in row["regions"]}
    if slowed and sight.diff_knew_at != sight.diff_knew_at:
        sight.diff_knew_at = now
    if slowed <= named and slowed and sight.status_knew_at != sight.status_knew_at:
        sight.status_knew_at = now


def _rows(page: httpx.Client, path: str, **parameters: str) -> list[Row]:
    answer = page.get(path, params=parameters)
    answer.raise_for_status()
    rows: list[Row] = answer.json()["rows"]
    return rows


def _look(newcomer: Newcomer, page: httpx.Client, sight: Sight, where: str) -> None:
    """Compare what the report, the page and the command line say of one window."""
    file = newcomer.home / "report.html"
    _isochrone(newcomer, "report", "--file", str(file))
    report = json.loads(file.read_text().partition('id="report">')[2].partition("</script>")[0])
    for url, answer in report["answers"].items():
        name, metric = urlsplit(url).path.removeprefix("/v1/"), parse_qs(urlsplit(url).query).get("metric", ["ttft"])
        if name not in ("leaderboard", "diff") or metric != ["ttft"]:
            continue
        begin, end = answer["window"]["from_at"], answer["window"]["until_at"]
        asked = _isochrone(newcomer, name, "--window", f"{begin}..{end}", "--output", "json")
        shown = _rows(page, f"/v1/{name}", **{"from": begin, "until": end})
        sight.note(where, odd(name, shown))
        for surface, rows in (("the report", answer["rows"]), ("the command", json.loads(asked)["rows"])):
            sight.note(where, differences(f"{name}: {surface} and the page", rows, shown))
    status = json.loads(_isochrone(newcomer, "status", "--output", "json"))
    diff, incidents = _rows(page, "/v1/diff"), _rows(page, "/v1/incidents")
    sight.note(where, disagreements(status, diff, incidents))
    for table in json.loads(_isochrone(newcomer, "routes", "--output", "json"))["rows"]:
        sight.note(where, odd(f"routes: {table['route']}", table["entries"]))


def _isochrone(newcomer: Newcomer, *arguments: str) -> str:
    """Return the output of a command; codes from 4 on are answers, too."""
    command = [str(ROOT / ".venv" / "bin" / "isochrone"), *arguments]
    ended = subprocess.run(command, env=os.environ | newcomer.environment, text=True, capture_output=True, check=False)
    if ended.returncode in (1, 2, 3):
        raise SystemExit(f"{shlex.join(command)}: {ended.stderr}")
    return ended.stdout


def _has_median(row: Row) -> bool:
    return row["ttft_p50_us"]["value"] is not None


def odd(name: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield what a single answer contradicts itself in."""
    for row in rows:
        what = f"{name}: {row['target']} from {row.get('region', 'its region')}"
        if "ttft_p95_us" in row and row["ttft_p95_us"]["value"] is not None and not _has_median(row):
            yield f"{what} has a p95 without a p50"
        if row.get("shift") is not None and row["decision"] in ("faster", "slower"):
            if (row["shift"] > 0) != (row["region_median"] > row["baseline_median"]):
                yield f"{what} differs by {row['shift']:.0f} us, its medians by {row['median_difference']:.0f} us"
            if (row["shift"] > 0) != (row["decision"] == "slower"):
                yield f"{what} is called {row['decision']}, and differs by {row['shift']:.0f} us"


def differences(what: str, rows: Sequence[Row], others: Sequence[Row]) -> Iterator[str]:
    """Yield the values that differ between rows of the same samples."""
    known = {(row["target"], row["region"]): row for row in others}
    for row in rows:
        other = known.get((row["target"], row["region"]), {})
        if any(row.get(name) != other.get(name) for name in COUNTS):
            # Samples have arrived between the answers.
            continue
        for name in VALUES:
            one, two = _plain(row.get(name)), _plain(other.get(name))
            are_numbers = isinstance(one, float) and isinstance(two, float)
            if not (math.isclose(one, two, rel_tol=SAME) if are_numbers else one == two):
                yield f"{what}: {row['target']} from {row['region']}: {name} is {one} and {two}"


def _plain(value: Any) -> Any:
    """Return the value of an estimate, or what is none; numbers as `float`."""
    found = value["value"] if isinstance(value, dict) else value
    return float(found) if isinstance(found, int) else found


def disagreements(status: Row, diff: Sequence[Row], incidents: Sequence[Row]) -> Iterator[str]:
    """Yield what the status says otherwise than the answers that it is of."""
    if status["verdict"] in ("well", "too_young") and incidents:
        yield f"the status is {status['verdict']} beside {len(incidents)} open incidents"
    rows = {(row["target"], row["region"]): row for row in diff}
    for finding in status["rows"]:
        for region in finding["regions"] if finding["kind"] == "slower" else ():
            row = rows.get((finding["target"], region))
            if row and finding["baseline"] == row["baseline"] and (row["shift"] or 0) * finding["shift"] < 0:
                yield f"{finding['sentence']}, but diff has {row['shift']:.0f} us from {region}"


def installed_bytes(name: str, *extras: str) -> int:
    """Return the size of a distribution and of all that it requires with these extras."""
    sizes: dict[str, int] = {}
    wanted = [(name, extras)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while wanted:
        one = wanted.pop()
        if one in seen:
            continue
        seen.add(one)
        found = metadata.distribution(one[0])
        paths = [Path(str(found.locate_file(path))) for path in found.files or ()]
        sizes[found.metadata["Name"]] = sum(path.stat().st_size for path in paths if path.is_file())
        for requirement in map(Requirement, found.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in one[1] or ("",)):
                wanted.append((requirement.name, tuple(sorted(requirement.extras))))
    return sum(sizes.values())


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(main())
