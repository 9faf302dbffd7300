"""Settings of PostgreSQL that the slowest replies to pushes depend on, with the measured gain of each. Pure.

The embedded server has all of them; docs/performance.md has the measurements. `wal_buffers` is not among them: 4 MB,
the default, was as fast as 16 MB.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from string import ascii_letters

from isochrone_common.cli.health_check import CheckResult, ok, warn

CHECK = "latency"

# Bytes, and microseconds.
_UNITS = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_UNITS |= {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Advice:
    """A setting, the value to give it, whether another value is as good, and what it gained when measured."""

    setting: str
    value: str
    is_met: Callable[[str], bool]
    gain: str


def _at_least(least: str) -> Callable[[str], bool]:
    return lambda value: _amount(value) >= _amount(least)


def _amount(value: str) -> int:
    """Return the bytes or microseconds of a value as PostgreSQL shows it, such as `16MB`, `20ms` or `0`."""
    digits = value.rstrip(ascii_letters)
    return int(digits) * _UNITS[value[len(digits) :] or "B"]


_ADVICE = (
    _Advice(
        setting="wal_compression",
        value="off",
        # `on` is pglz.
        is_met=lambda value: value in ("off", "lz4", "zstd"),
        gain="a page in the log took 0.3 ms less than with pglz",
    ),
    _Advice(
        setting="max_wal_size",
        value="4GB",
        is_met=_at_least("4GB"),
        gain="at half load the p99 of replies was 66 ms in place of 80 to 170 ms with 2 GB",
    ),
    _Advice(
        setting="backend_flush_after",
        value="1MB",
        is_met=_at_least("1MB"),
        gain="commits no longer waited 0.2 to 0.4 s for the kernel to write half a minute of rows",
    ),
    _Advice(
        setting="autovacuum_vacuum_cost_delay",
        value="20ms",
        is_met=_at_least("20ms"),
        gain="at half load the p99 of replies was 77 and 229 ms in two runs, in place of 206 to 326 ms in three",
    ),
)


def judge_latency(settings: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check the settings of a server, by name, as `SHOW` writes them; one that is missing is not checked."""
    known = [(one, settings[one.setting]) for one in _ADVICE if one.setting in settings]
    slow = [(one, value) for one, value in known if not one.is_met(value)]
    for one, value in slow:
        change = f"ALTER SYSTEM SET {one.setting} = '{one.value}'; SELECT pg_reload_conf()"
        hint = f"{change}: measured, {one.gain}"
        yield warn(CHECK, f"{one.setting} is {value}", hint)
    if known and not slow:
        yield ok(CHECK, ", ".join(f"{one.setting} {value}" for one, value in known))
