"""Free space: an alert, then no backlogs, then no pushes, in shares of small disks and in bytes of large ones."""

import pytest

from isochrone_collector.disk_space import DiskLevel, DiskSpace

GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "size", "level"),
    [
        (15, 100, DiskLevel.ENOUGH),
        (14.9, 100, DiskLevel.LOW),
        (7.4, 100, DiskLevel.NO_BACKLOG),
        (3.7, 100, DiskLevel.FULL),
        (0, 100, DiskLevel.FULL),
        (16, 10_000, DiskLevel.ENOUGH),
        (15, 10_000, DiskLevel.LOW),
        (7, 10_000, DiskLevel.NO_BACKLOG),
        (3, 10_000, DiskLevel.FULL),
    ],
)
def test_levels(free: float, size: int, level: DiskLevel) -> None:
    """The limits are 15 % of the disk, at most 16 GiB, half of that and a quarter of it."""
    assert DiskSpace(free_bytes=int(free * GIB), size_bytes=size * GIB, low_percent=15).level is level


def test_no_limits() -> None:
    """With 0 percent there is always enough."""
    assert DiskSpace(free_bytes=0, size_bytes=100 * GIB, low_percent=0).level is DiskLevel.ENOUGH
