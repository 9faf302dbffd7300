"""The screen of `isochrone demo` on a terminal, read as a person reads it."""

import re

from isochrone_client.demo.scenario import SLOWDOWN
from isochrone_client.formats import UNKNOWN

TARGETS = 15
SLOW = ("tencent/hunyuan-turbos", "tencent/hunyuan-turbo")
"""The targets of the provider that gets slower."""


def rows(screen: str) -> list[str]:
    lines = screen.splitlines()
    headings = [n for n, line in enumerate(lines) if line.split()[:1] == ["ttft"]]
    # Without the pointer to the selected target.
    return [line[2:] for line in lines[headings[0] + 1 :][:TARGETS]] if headings else []


def samples(screen: str) -> int:
    found = re.search(r" (\d+) samples", screen)
    return int(found[1]) if found else 0


def is_whole(screen: str) -> bool:
    """Return whether all targets and the last lines are there, so that no part of an earlier screen is left."""
    return len([row for row in rows(screen) if row]) == TARGETS and "\nlive page: " in screen and "\ntry " in screen


def has_every_ttft(screen: str) -> bool:
    return is_whole(screen) and not any(UNKNOWN in row for row in rows(screen))


def is_firm(screen: str) -> bool:
    return is_whole(screen) and all(row.count("±") == 2 for row in rows(screen))


def is_wide(screen: str) -> bool:
    return is_whole(screen) and any(row.startswith(f"{SLOW[0]} ") for row in rows(screen))


def is_narrow(screen: str) -> bool:
    return is_whole(screen) and not any("/" in row.split()[0] for row in rows(screen))


def has_incident(screen: str) -> bool:
    """Return whether the events have the measured size of the incident for each slow target."""
    return all(f"{target} takes" in screen for target in SLOW)


def has_switch(screen: str) -> bool:
    """Return whether the events have the switch of the route that the incident affects."""
    return f"the route chat switches in {next(iter(SLOWDOWN.begins))}: " in screen
