"""The identity file survives a round trip, and is readable by its owner only."""

import socket
import stat
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from isochrone_common import identity_file, local_socket
from isochrone_common.address import Address, parse_address, parse_local_address
from isochrone_common.channel import open_channel
from isochrone_common.credentials import Credential
from isochrone_common.identity_file import Identity
from isochrone_common.trust import PLAIN, SYSTEM, ClientCertificate, Trust
from isochrone_wire.operations import Role

CLIENT = ClientCertificate(certificate=Path("/c.pem"), key=Path("/k.pem"))
BASE = Identity(
    address=Address("::1", 4600),
    name="sg-1",
    role=Role.VANTAGE,
    region="ap",
    credential=str(Credential(id=2**63 - 1, secret=bytes(range(32)))),
)


@pytest.mark.parametrize(
    "trust",
    [
        PLAIN,
        SYSTEM,
        Trust(roots="PEM", server_name="x"),
        Trust(roots="PEM", client=CLIENT),
        Trust(roots="PEM", server_name="x", next_certificate="PEM"),
    ],
)
@pytest.mark.parametrize("region", [None, "ap"])
def test_a_passport_survives_the_disk(tmp_path: Path, trust: Trust, region: str | None) -> None:
    """A written identity is read back unchanged, with owner-only permissions, also over an existing file."""
    file = tmp_path / "folder" / "identity.json"
    identity_file.write(file, BASE)
    kept = replace(BASE, trust=trust, region=region, expires_at=9, renew_at=6 if region else None)
    identity_file.write(file, kept)
    assert identity_file.read(file) == kept
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_no_repr_shows_the_credential() -> None:
    """`repr` does not contain the credential, because logs print values."""
    assert BASE.credential not in repr(BASE)


@pytest.mark.parametrize("address", ["10.0.0.1:1", "collector.example", "0.0.0.0:4600"])
def test_plain_text_goes_nowhere_else(address: str) -> None:
    """A plain-text channel to another machine is refused."""
    with pytest.raises(ValueError, match="plain text is allowed on loopback only"):
        open_channel(parse_address(address), PLAIN)


def test_a_client_certificate_that_is_gone_is_told(tmp_path: Path) -> None:
    """The error names the file that cannot be read."""
    gone = ClientCertificate(certificate=tmp_path / "c.pem", key=tmp_path / "k.pem")
    with pytest.raises(ValueError, match=r"k\.pem: No such file"):
        open_channel(parse_address("127.0.0.1:1"), Trust(client=gone))


def test_which_collector_is_meant() -> None:
    """A named identity applies to every address, the default one to its own address. Without both it is the socket of
    this user's collector, or loopback if none listens there.
    """
    there, here = parse_address("elsewhere:1"), parse_address("127.0.0.1:4600")
    # The path of a socket is short.
    with tempfile.TemporaryDirectory() as home, socket.socket(socket.AF_UNIX) as listening:
        select_collector = partial(local_socket.select_collector, environment={"XDG_DATA_HOME": home})
        assert select_collector(None, named=None, default=None) == (here, None)
        assert select_collector(there, named=None, default=None) == (there, None)
        assert select_collector(None, named=None, default=BASE) == (BASE.address, BASE)
        assert select_collector(there, named=None, default=BASE) == (there, None)
        assert select_collector(there, named=BASE, default=None) == (there, BASE)
        assert select_collector(None, named=BASE, default=replace(BASE, name="x")) == (BASE.address, BASE)
        path = Path(home, "isochrone", "collector", "collector.sock")
        path.parent.mkdir(parents=True)
        listening.bind(str(path))
        listening.listen()
        assert select_collector(None, named=None, default=None) == (parse_local_address(f"unix:{path}"), None)
        assert select_collector(there, named=None, default=None) == (there, None)
        assert select_collector(None, named=None, default=BASE) == (BASE.address, BASE)
