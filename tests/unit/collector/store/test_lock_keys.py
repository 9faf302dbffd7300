"""Advisory locks: every lock has a key of its own, or two jobs would wait for each other."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def test_every_lock_has_a_key_of_its_own() -> None:
    """The keys of the collector and the migrations are distinct, and in one range."""
    sources = [path for room in ("collector", "migrations") for path in (ROOT / room).rglob("*.py")]
    keys = Counter(
        int(key) for path in sources for key in re.findall(r"^_\w*LOCK_KEY = ([\d_]+)", path.read_text(), re.MULTILINE)
    )
    assert len(keys) >= 6
    assert [key for key, uses in keys.items() if uses > 1] == []
    assert all(4_600_000 < key < 4_601_000 for key in keys)
