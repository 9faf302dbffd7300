"""The program of the network where it cannot be created."""

import errno
import os
import sys

import pytest

from isochrone_sim.network import __main__ as program


@pytest.mark.parametrize(
    ("file", "reason"),
    [("/dev/net/tun", "/dev/net/tun: permission denied"), (None, "network namespaces: permission denied")],
)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_the_reason_is_the_end_of_the_message(
    monkeypatch: pytest.MonkeyPatch, *, file: str | None, reason: str
) -> None:
    """The reason names what was refused, if the kernel tells."""

    def refuse(_round_trips_us: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), file)

    monkeypatch.setattr(program, "create_wide_area", refuse)
    monkeypatch.setattr(sys, "argv", ["network", "eu-central-1=85"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert str(ended.value).endswith(reason)
