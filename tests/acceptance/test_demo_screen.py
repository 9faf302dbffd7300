"""The screen of `isochrone demo` on a terminal of 80 and, after a change of size, 140 columns."""

import re
import sys
import time
from dataclasses import dataclass, field

import pytest

from isochrone_client.demo.layout import CHANGED_MARK
from isochrone_client.demo.scenario import EPISODE, SUGGESTIONS
from isochrone_client.formats import UNKNOWN
from testdata.pseudo_terminal import CTRL_C, PseudoTerminal

pytestmark = pytest.mark.slow
TARGETS = 15
SLOW = ("tencent/hunyuan-turbos", "tencent/hunyuan-turbo")
FIRST_TABLE_SECONDS = 15


@dataclass(kw_only=True)
class Recording:
    """Screens of one demo, by what they show; instants in monotonic seconds."""

    screens: dict[str, str] = field(default_factory=dict)
    instants: dict[str, float] = field(default_factory=dict)
    scrollback: str = ""
    exit_code: int | None = None
    shows_cursor: bool = False
    is_alternate: bool = True

    def take(self, name: str, terminal: PseudoTerminal, at: float) -> None:
        """Keep the screen that is shown."""
        self.screens[name], self.instants[name] = terminal.text, at


def rows(screen: str) -> list[str]:
    """The lines of the targets."""
    lines = screen.splitlines()
    headings = [n for n, line in enumerate(lines) if line.split()[:1] == ["ttft"]]
    return lines[headings[0] + 1 :][:TARGETS] if headings else []


def is_whole(screen: str) -> bool:
    """Return whether the last line is there, so that no part of an earlier screen is left."""
    return len(rows(screen)) == TARGETS and "\nHTTP API: " in screen


def has_every_ttft(screen: str) -> bool:
    """Return whether each target has a number from each of the three regions."""
    return is_whole(screen) and not any(UNKNOWN in row for row in rows(screen))


def is_firm(screen: str) -> bool:
    """Return whether each difference has an error."""
    return is_whole(screen) and all(row.count("±") == 2 for row in rows(screen))


def is_wide(screen: str) -> bool:
    """Return whether the targets have their providers."""
    return is_whole(screen) and any(row.startswith(f"{SLOW[0]} ") for row in rows(screen))


def is_narrow(screen: str) -> bool:
    """Return whether the targets have no providers."""
    return is_whole(screen) and not any("/" in row.split()[0] for row in rows(screen))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A demo that was watched until its incident was measured, and then ended with Ctrl-C."""
    seen = Recording()
    folder = tmp_path_factory.mktemp("demo") / "place"
    command = [sys.executable, "-m", "isochrone_client", "demo", "--folder", str(folder)]
    with PseudoTerminal(command, columns=80, lines=24) as terminal:
        terminal.wait_for(lambda text: "Isochrone demo" in text, 120, "the screen")
        at = terminal.wait_for(lambda text: not re.search(r" 0 samples", text), 60, "a sample")
        seen.take("sample", terminal, at)
        seen.take("table", terminal, terminal.wait_for(has_every_ttft, 60, "a number in every cell"))
        terminal.wait_for(lambda text: "warming up 4/6" in text, 60, "cells that warm up")
        seen.take("warming up", terminal, time.monotonic())
        seen.take("firm", terminal, terminal.wait_for(is_firm, 90, "a difference in every cell"))
        terminal.resize(columns=140, lines=40)
        seen.take("wide", terminal, terminal.wait_for(is_wide, 30, "a wide table"))
        terminal.wait_for(lambda text: f"{EPISODE.after_seconds} s: " in text, 120, "the incident")
        slow = [f"{target} takes" for target in SLOW]
        at = terminal.wait_for(lambda text: all(words in text for words in slow), 90, "the incident, measured")
        seen.take("incident", terminal, at)
        terminal.resize(columns=80, lines=24)
        seen.take("narrow incident", terminal, terminal.wait_for(is_narrow, 30, "a narrow table"))
        terminal.press(CTRL_C)
        seen.exit_code = terminal.process.wait(90)
        terminal.wait_for(lambda text: re.search(r"^kimi-k2\.5 .* (found|missed)", text, re.MULTILINE), 30, "the end")
        seen.scrollback = terminal.scrollback
        seen.shows_cursor, seen.is_alternate = terminal.shows_cursor(), terminal.is_alternate()
    assert not folder.exists()
    return seen


def test_the_first_table_comes_soon(recording: Recording) -> None:
    """A table with a number in every cell is on the screen within 15 s of the first sample."""
    assert recording.instants["table"] - recording.instants["sample"] <= FIRST_TABLE_SECONDS


def test_differences_firm_up(recording: Recording) -> None:
    """At first a difference is replaced by the rounds that it has; later each has an error and no cell warms up."""
    assert not any("±" in row for row in rows(recording.screens["table"]))
    assert "warming up" not in recording.screens["firm"]


@pytest.mark.parametrize(("name", "width"), [("table", 80), ("firm", 80), ("wide", 140), ("narrow incident", 80)])
def test_each_screen_is_whole(recording: Recording, name: str, width: int) -> None:
    """Each screen has the progress, all targets, both regions, the HTTP API and a line to try, none of them cut."""
    lines = recording.screens[name].splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("Isochrone demo")
    # On a busy machine, a few probes of the incident take longer than their timeout.
    assert re.search(r" samples, \d+ failed", lines[0])
    assert len({row.split()[0] for row in rows(recording.screens[name])}) == TARGETS
    assert any(line.startswith("HTTP API: http://127.0.0.1:") for line in lines)
    [tried] = [line for line in lines if line.startswith("try ")]
    assert any(suggestion.removeprefix("isochrone") in tried for suggestion in SUGGESTIONS)


@pytest.mark.parametrize("name", ["firm", "wide"])
def test_nothing_is_marked_before_the_incident(recording: Recording, name: str) -> None:
    """Before the incident no place is marked, and the incident is announced."""
    assert not any(CHANGED_MARK in row for row in rows(recording.screens[name]))
    announced = f"{EPISODE.provider} gets {EPISODE.added_ms} ms slower from {EPISODE.region}"
    assert re.search(rf"^in \d+ s {announced}", recording.screens[name], re.MULTILINE)


@pytest.mark.parametrize("name", ["incident", "narrow incident"])
def test_the_incident_is_shown_where_it_happens(recording: Recording, name: str) -> None:
    """The mark is in the column of the slow region in the rows of the slow provider, and nowhere else."""
    lines = recording.screens[name].splitlines()
    heading = next(line for line in lines if line.startswith("last ") and EPISODE.region in line)
    marked = [row for row in rows(recording.screens[name]) if CHANGED_MARK in row]
    assert {line.split()[0].rpartition("/")[2] for line in marked} == {target.rpartition("/")[2] for target in SLOW}
    assert all(line.count(CHANGED_MARK) == 1 for line in marked)
    assert all(line.index(CHANGED_MARK) >= heading.index(EPISODE.region) for line in marked)


def test_the_events_name_the_incident(recording: Recording) -> None:
    """The events have the beginning of the incident and its measured size, and a switch of the route it affects."""
    events = recording.scrollback
    for target in SLOW:
        [measured] = re.findall(rf"{target} takes (\d+) ms longer from {EPISODE.region}", events)
        assert abs(int(measured) - EPISODE.added_ms) <= EPISODE.added_ms / 4
    assert "ms less from" not in events
    switches = set(re.findall(r"the route \S+ switches in (\S+):", events))
    assert switches <= {EPISODE.region}


def test_the_results_stay_on_the_terminal(recording: Recording) -> None:
    """After Ctrl-C the terminal is as before, with the results and the events to scroll to."""
    assert recording.exit_code == 0
    assert recording.shows_cursor
    assert not recording.is_alternate
    for words in ("a simulated world of", "ap-southeast-1 against us-east-2", "ground truth", "· 75 s: tencent gets"):
        assert words in recording.scrollback
    assert "Traceback" not in recording.scrollback
    assert "Isochrone demo" not in recording.scrollback
