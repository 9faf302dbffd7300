"""`make first-hour`: the first hour of a new user with a fresh clone, the README and the pages, on pseudo-terminals.

The demo on a terminal of 80 and then 140 columns; every command of docs/asking.md and every example of `--help`;
servers of other projects; the README's way from an empty database to a differential; a restart; and closed terminals.
A defect is an unexpected exit code, a traceback, an internal error, a line wider than the terminal, a name broken over
two lines, or a process that outlives its terminal.

usage: python -m first_hour [--here] [--keep FOLDER]
prints defects as they are found and a RESULT line; exit 1 with a defect
"""

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import yaml

from first_hour.documented import commands, examples, exit_codes, questions, subcommands
from first_hour.foreign_servers import ForeignServer, foreign_servers
from first_hour.newcomer import NARROW, WIDE, Newcomer
from testdata.pseudo_terminal import CTRL_C, PseudoTerminal

ROOT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS = 900
DEMO_SECONDS = 45
DIFFERENTIAL_SECONDS = 480
ENDING_SECONDS = 60
PORTS = (4600, 8081, 8082)
KEEPS_RUNNING = ("serve", "run")


def main() -> int:
    parser = argparse.ArgumentParser(description="The first hour of a new user.")
    parser.add_argument("--here", action="store_true", help="this checkout and its environment, not a fresh clone")
    parser.add_argument("--keep", type=Path, help="keep the clone and the home folder here")
    options = parser.parse_args()
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                parser.error(f"port {port} is in use, and the README uses it: end the program that listens there")
    with tempfile.TemporaryDirectory() as name:
        folder = (options.keep or Path(name)).resolve()
        clone, home = ROOT if options.here else folder / "isochrone", folder / "home"
        home.mkdir(parents=True)
        if not options.here:
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        newcomer = Newcomer(clone, home)
        figures = {"first_table_s": float("nan")}
        with newcomer.step("the demo, and every command beside it"):
            figures["first_table_s"] = demo(newcomer)
        with foreign_servers(folder) as servers:
            with newcomer.step(
                f"probes of foreign servers ({', '.join(one.project for one in servers) or 'none here'})"
            ):
                probe_foreign(newcomer, servers)
            with newcomer.step("from the README to a differential"):
                run_it_for_real(newcomer, servers)
    failures = len(newcomer.failures)
    print(  # noqa: T201  # the result
        f"RESULT first_table_s={figures['first_table_s']:.1f} commands={newcomer.commands} failures={failures}"
    )
    return int(failures > 0)


def demo(newcomer: Newcomer) -> float:
    """Run the demo and every question beside it; return the seconds from the first sample to the first table."""
    with newcomer.terminal("make demo", folder=newcomer.clone) as terminal:
        terminal.wait_for(lambda text: "Isochrone demo" in text, INSTALL_SECONDS, "the demo's screen")
        first = terminal.wait_for(lambda text: re.search(r" [1-9]\d* samples", text), 120, "a sample")
        table = terminal.wait_for(_has_numbers, 60, "a number in every row")
        time.sleep(DEMO_SECONDS)
        newcomer.names = _names(newcomer)
        newcomer.note("make demo (80 columns)", terminal.text, NARROW)
        terminal.resize(columns=WIDE, lines=40)
        _ask_everything(newcomer)
        newcomer.note("make demo (140 columns)", terminal.text, WIDE)
        terminal.close()
        left = newcomer.left_running(ENDING_SECONDS)
    for words in left:
        newcomer.fail(f"still running after the demo's terminal was closed: {words}")
    return table - first


def _has_numbers(text: str) -> bool:
    rows = re.findall(r"^(?:▸ |  )(?:\S+/)?(?:kimi-k2\.5|glm-5|qwen3-32b) +(\d*)", text, re.MULTILINE)
    return len(rows) >= 3 and all(rows)


def _names(newcomer: Newcomer) -> set[str]:
    answer = json.loads(newcomer.run("isochrone targets --output json", columns=WIDE))
    return {str(row[key]) for row in answer["rows"] for key in ("target", "model", "provider") if row.get(key)}


def _ask_everything(newcomer: Newcomer) -> None:
    for line in questions(newcomer.clone):
        for columns in (NARROW, WIDE):
            newcomer.run(line, columns=columns, fine=exit_codes(line))
    every = subcommands(newcomer.run("isochrone --help", columns=NARROW))
    lines = {line for name in every for line in examples(newcomer.run(f"isochrone {name} --help", columns=NARROW))}
    for line in sorted(lines - set(questions(newcomer.clone))):
        if "parquet" not in line:
            newcomer.run(line, columns=NARROW, fine=exit_codes(line))


def probe_foreign(newcomer: Newcomer, servers: list[ForeignServer]) -> None:
    """Measure each server once, without settings."""
    for server in servers:
        line = f"isochrone-agent probe --base-url {server.base_url} --model {server.model} --runs 2"
        for columns in (NARROW, WIDE):
            newcomer.run(line, columns=columns)


def run_it_for_real(newcomer: Newcomer, servers: list[ForeignServer]) -> None:
    """Follow the README to a differential, add foreign targets, restart the collector, and close every terminal."""
    section = (newcomer.clone / "README.md").read_text().partition("## Run it for real\n")[2].partition("\n## ")[0]
    plan = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0]
    (newcomer.home / "plan.yaml").write_text(plan)
    *lines, question = commands(section)
    with ExitStack() as stack:
        running: dict[str, PseudoTerminal] = {}
        for line in lines:
            if line.split()[1] in KEEPS_RUNNING:
                running[line] = stack.enter_context(newcomer.terminal(line))
                newcomer.commands += 1
                time.sleep(1)
            else:
                _until(newcomer, line, lambda _: True, ENDING_SECONDS)
        _until(newcomer, question, _is_decided, DIFFERENTIAL_SECONDS)
        newcomer.run(question, columns=NARROW)
        if servers:
            _add_targets(newcomer, plan, servers)
        [serve] = [line for line in running if line.startswith("isochrone-collector serve")]
        running[serve].press(CTRL_C)
        running[serve].process.wait(ENDING_SECONDS)
        running[serve] = stack.enter_context(newcomer.terminal(serve))
        _until(newcomer, question, _is_decided, ENDING_SECONDS)
        newcomer.run("isochrone vantages", columns=NARROW)
        for line, terminal in running.items():
            newcomer.note(line, "\n".join(terminal.scrollback.splitlines()), NARROW)
            terminal.close()
        left = newcomer.left_running(ENDING_SECONDS)
    for words in left:
        newcomer.fail(f"still running after its terminal was closed: {words}")


def _is_decided(text: str) -> bool:
    """Return whether the row of the target has the decision; the note of an undecided one can have the word, too."""
    return re.search(r"kimi-k2\.5 .*faster", text) is not None


def _until(newcomer: Newcomer, line: str, true: Callable[[str], bool], seconds: float) -> None:
    """Repeat a command, as a person does who waits for its answer, until it answers as wanted."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with newcomer.terminal(line, columns=WIDE) as terminal:
            code = terminal.process.wait(90)
            terminal.close()
            shown = terminal.output.decode(errors="replace")
        if code == 0 and true(shown):
            return
        time.sleep(2)
    newcomer.fail(f"{line}: no such answer within {seconds:g} s, at last: {shown.strip()[-300:]}")


def _add_targets(newcomer: Newcomer, plan: str, servers: list[ForeignServer]) -> None:
    document = yaml.safe_load(plan)
    for server in servers:
        workload = {"max_output_tokens": 8}
        target = {"provider": server.project, "model": server.model, "base_url": server.base_url, "workload": workload}
        document["targets"].append(target)
    (newcomer.home / "plan.yaml").write_text(yaml.safe_dump(document))
    newcomer.run("isochrone-collector apply plan.yaml --yes", columns=NARROW)
    for server in servers:
        question = f"isochrone samples --target {server.project}/{server.model} --limit 5"
        _until(newcomer, question, lambda text: " ok " in text, DIFFERENTIAL_SECONDS)
        newcomer.run(question, columns=NARROW)


if __name__ == "__main__":
    sys.exit(main())
