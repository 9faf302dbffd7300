"""Settings of a server that slow replies depend on: what the embedded server has is right, and defaults are not."""

import pytest

from isochrone_collector.cli.health_checks import judge_latency
from isochrone_common.cli.health_check import Verdict

WELL = {
    "wal_compression": "off",
    "max_wal_size": "4GB",
    "backend_flush_after": "1MB",
    "autovacuum_vacuum_cost_delay": "20ms",
}


@pytest.mark.parametrize(
    "settings",
    [
        WELL,
        WELL | {"wal_compression": "lz4"},
        WELL | {"wal_compression": "zstd", "max_wal_size": "1TB", "backend_flush_after": "2MB"},
        WELL | {"max_wal_size": "4096MB", "backend_flush_after": "1024kB", "autovacuum_vacuum_cost_delay": "1s"},
    ],
)
def test_enough_is_right(settings: dict[str, str]) -> None:
    """Larger sizes are as good, in any unit, and so are faster methods of compression."""
    (found,) = judge_latency(settings)
    assert found.verdict is Verdict.OK
    assert f"max_wal_size {settings['max_wal_size']}" in found.sentence


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("wal_compression", "pglz", "off"),
        ("wal_compression", "on", "off"),
        ("max_wal_size", "1GB", "4GB"),
        ("max_wal_size", "4095MB", "4GB"),
        ("backend_flush_after", "0", "1MB"),
        ("backend_flush_after", "512kB", "1MB"),
        ("autovacuum_vacuum_cost_delay", "2ms", "20ms"),
        ("autovacuum_vacuum_cost_delay", "500us", "20ms"),
        ("autovacuum_vacuum_cost_delay", "-1", "20ms"),
    ],
)
def test_a_slow_setting_is_reported_with_the_value_to_set_and_its_gain(setting: str, value: str, wanted: str) -> None:
    """The hint is a statement that can be copied, and what was gained by it when it was measured."""
    (found,) = judge_latency(WELL | {setting: value})
    assert found.verdict is Verdict.WARN
    assert found.sentence == f"{setting} is {value}"
    assert f"ALTER SYSTEM SET {setting} = '{wanted}'" in found.hint
    assert "pg_reload_conf(): measured, " in found.hint


def test_a_setting_that_a_server_does_not_have_is_not_checked() -> None:
    """A relative of PostgreSQL may lack all of them."""
    assert not list(judge_latency({}))
