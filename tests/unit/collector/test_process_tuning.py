"""The share of a listener in the limit of open files."""

import resource

import pytest

from isochrone_collector.process_tuning import max_connections


@pytest.mark.parametrize(
    ("allowed", "connections"), [(resource.RLIM_INFINITY, 4_000), (65_536, 4_000), (1_024, 384), (256, 64), (64, 64)]
)
def test_listeners_share_the_open_files(monkeypatch: pytest.MonkeyPatch, allowed: int, connections: int) -> None:
    """Two listeners at their limits leave 256 files for the rest of the collector, unless there are hardly any."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert max_connections(4_000) == connections
