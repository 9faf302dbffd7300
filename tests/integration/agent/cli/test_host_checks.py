"""Health checks that ask the kernel."""

import sys

import pytest

from isochrone_agent.cli.host_checks import kernel_clock


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports it")
def test_the_kernel_reports_its_clock() -> None:
    """The structure of adjtimex is read at the right offsets: the error bound is a time, and not another field."""
    clock = kernel_clock()
    assert clock is not None
    # 16 s is what the kernel reports when the clock is not synchronised.
    assert 0 <= clock.max_error_us <= 16_000_000
