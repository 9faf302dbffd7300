"""What `run` is told about its spool."""

from pathlib import Path

import pytest

from isochrone_agent.errors import SettingsError
from isochrone_agent.settings import load_settings, parse_size
from isochrone_agent.spool.spool import DEFAULT_LIMIT_BYTES, Drain


@pytest.mark.parametrize(
    ("text", "size"), [("100MB", 100_000_000), ("2G", 2_000_000_000), ("1500k", 1_500_000), (" 1000000 ", 1_000_000)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    """A number, with a decimal unit or without."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "10kB", "-5MB", "1.5GB", "100MiB"])
def test_what_is_no_size_is_told(text: str) -> None:
    """What cannot be read, or would not hold a day, is an error that shows how to write it."""
    with pytest.raises(SettingsError, match="at least 1 MB") as caught:
        parse_size(text)
    assert "100MB" in caught.value.hint


def test_limit_and_order_come_from_flags_or_file(tmp_path: Path) -> None:
    """Both have defaults, both can be said, and an unknown order in the file is an error."""
    told = {"vantage": "a", "region": "b", "data_dir": str(tmp_path)}
    usual = load_settings(None, told)
    assert (usual.spool_limit_bytes, usual.drain) == (DEFAULT_LIMIT_BYTES, Drain.NEWEST)
    said = load_settings(None, told | {"spool_limit": "5MB", "drain": "oldest"})
    assert (said.spool_limit_bytes, said.drain) == (5_000_000, Drain.OLDEST)
    with pytest.raises(SettingsError, match="no order to drain in"):
        load_settings(None, told | {"drain": "sideways"})
