"""Addresses, credentials and identity files: what survives copying, where a collector is found, and renewal."""

import os
import socket
import ssl
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isochrone_common import identity_file
from isochrone_common.address import MAX_SOCKET_PATH_BYTES, Address, parse_address, parse_local_address
from isochrone_common.channel import open_channel
from isochrone_common.credentials import (
    Credential,
    JoinToken,
    derive_successor,
    fingerprint_of,
    format_fingerprint,
    hash_secret,
    parse_credential,
    parse_join_token,
)
from isochrone_common.identity_file import Identity
from isochrone_common.local_socket import default_socket, is_listening, plain_text_refusal, select_collector
from isochrone_common.trust import PLAIN, SYSTEM, ClientCertificate, Trust
from isochrone_wire.operations import Role
from isochrone_wire.v1 import fleet_pb2


@pytest.mark.parametrize("path", ["/run/isochrone.sock", "collector.sock", "/" + "x" * (MAX_SOCKET_PATH_BYTES - 1)])
def test_a_unix_socket_is_on_this_machine(path: str) -> None:
    """`unix:` and a path is an address of this machine; where only a port makes sense, it is an error."""
    address = parse_local_address(f"unix:{path}")
    assert (str(address), address) == (f"unix:{path}", Address(f"unix:{path}", 0))
    assert address.is_loopback
    with pytest.raises(ValueError, match="no valid port"):
        parse_address(f"unix:{path}")


@pytest.mark.parametrize("text", ["unix:", "unix:/" + "x" * MAX_SOCKET_PATH_BYTES, "unix:" + "é" * 60])
def test_a_path_that_no_socket_can_have(text: str) -> None:
    """An empty path, or one that is longer than the kernel's limit in bytes, is an error that states the limit."""
    with pytest.raises(ValueError, match=f"of 1 to {MAX_SOCKET_PATH_BYTES} bytes"):
        parse_local_address(text)


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:1", "127.0.0.1", 1, True),
        ("localhost", "localhost", 4600, True),
        ("[::1]:5", "::1", 5, True),
        ("::1", "::1", 4600, True),
        ("10.0.0.1:5", "10.0.0.1", 5, False),
        ("collector.example", "collector.example", 4600, False),
    ],
)
def test_other_addresses_have_a_host_and_a_port(text: str, host: str, port: int, *, loopback: bool) -> None:
    """An address without `unix:` has a host and a port, and may be a loopback address."""
    address = parse_address(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, loopback)
    assert parse_local_address(text) == address


SECRET = bytes(range(32))
FINGERPRINT = bytes(reversed(range(32)))


@pytest.mark.parametrize("fingerprint", [b"", FINGERPRINT])
def test_tokens_survive_being_copied(fingerprint: bytes) -> None:
    """A join token, also with surrounding whitespace, and a credential are parsed back; a cut token is refused."""
    token = JoinToken(id=2**63 - 1, secret=SECRET, fingerprint=fingerprint)
    assert parse_join_token(f"  {token}\n") == token
    credential = Credential(id=1, secret=SECRET)
    assert parse_credential(str(credential)) == credential
    for cut in (1, 10, 40):
        with pytest.raises(ValueError, match="join token"):
            parse_join_token(str(token)[:-cut])


TOKEN = str(JoinToken(id=1, secret=SECRET, fingerprint=b""))


@pytest.mark.parametrize(
    "text", ["", "isochrone-key-", "isochrone-key-AAAA", "isochrone-key-ä", "Bearer x", TOKEN], ids=range(6)
)
def test_what_is_no_credential_is_refused_without_repeating_it(text: str) -> None:
    """An error message never contains a mistyped secret."""
    with pytest.raises(ValueError, match=r"credential") as refused:
        parse_credential(text)
    assert len(text) < 20 or text not in str(refused.value)


def test_no_repr_shows_a_secret() -> None:
    """`repr` contains no secret, because logs print values."""
    shown = repr(Credential(id=1, secret=SECRET)) + repr(JoinToken(id=1, secret=SECRET, fingerprint=FINGERPRINT))
    assert repr(SECRET) not in shown
    assert BASE.credential not in repr(BASE)
    assert "secret" not in shown


def test_hashes_and_fingerprints_are_the_usual_ones() -> None:
    """Hashes are plain SHA-256, and fingerprints have the format of openssl."""
    assert hash_secret(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert format_fingerprint(b"\x0a\xff") == "SHA256:0A:FF"


CLIENT = ClientCertificate(certificate=Path("/c.pem"), key=Path("/k.pem"))
KEY = str(Credential(id=2**63 - 1, secret=SECRET))
BASE = Identity(address=Address("::1", 4600), name="sg-1", role=Role.VANTAGE, region="ap", credential=KEY)


TLS = Trust(roots="PEM", server_name="x")


@pytest.mark.parametrize(
    "trust", [PLAIN, SYSTEM, TLS, Trust(roots="PEM", client=CLIENT), replace(TLS, next_certificate="PEM")]
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


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """Listen on a Unix socket, whose file stays afterwards, as of a killed collector."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield


@pytest.mark.parametrize(
    ("http", "name", "port"), [(False, "collector.sock", 4600), (True, "collector.http.sock", 4680)]
)
def test_the_first_socket_with_a_listener_counts(home: Path, http: bool, name: str, port: int) -> None:  # noqa: FBT001
    """The socket's variable precedes the data folder's, and that the default folder; HTTP's socket is beside each."""
    given, own, usual = (home / folder / name for folder in ("given", "own", "isochrone/collector"))
    environment = {
        "ISOCHRONE_UNIX_SOCKET": str(given.with_name("collector.sock")),
        "ISOCHRONE_DATA_DIR": str(own.parent),
        "XDG_DATA_HOME": str(home),
    }

    def found() -> str:
        return str(select_collector(None, named=None, default=None, http=http, environment=environment)[0])

    assert found() == f"127.0.0.1:{port}"
    with listening(usual):
        assert found() == f"unix:{usual}"
        with listening(own):
            assert found() == f"unix:{own}"
            with listening(given):
                assert found() == f"unix:{given}"
    assert usual.exists()
    assert found() == f"127.0.0.1:{port}"


def test_an_identity_precedes_the_socket(home: Path) -> None:
    """A named identity applies to every address, the default one to its own address; a given address needs none."""
    there = parse_address("elsewhere:1")
    with listening(home / "isochrone" / "collector" / "collector.sock"):
        for address, named, default, meant in (
            (there, None, None, (there, None)),
            (None, None, BASE, (BASE.address, BASE)),
            (there, None, BASE, (there, None)),
            (there, BASE, None, (there, BASE)),
            (None, BASE, replace(BASE, name="x"), (BASE.address, BASE)),
        ):
            environment = {"XDG_DATA_HOME": str(home)}
            assert select_collector(address, named=named, default=default, environment=environment) == meant


def test_an_agent_waits_for_the_socket(home: Path) -> None:
    """An agent that starts before its collector takes the place of the socket; its own data folder is not that."""
    environment = {"ISOCHRONE_DATA_DIR": str(home / "agent"), "XDG_DATA_HOME": str(home)}
    assert str(default_socket(environment)) == f"unix:{home}/isochrone/collector/collector.sock"
    with listening(home / "agent/collector.sock"):
        assert str(default_socket(environment)) == f"unix:{home}/agent/collector.sock"
    assert str(default_socket(environment | {"ISOCHRONE_UNIX_SOCKET": "/run/i.sock"})) == "unix:/run/i.sock"
    assert str(default_socket(environment | {"ISOCHRONE_UNIX_SOCKET": "off"})).endswith("/collector.sock")


def test_a_place_without_a_listener(tmp_path: Path) -> None:
    """Neither a file nor a path that no socket can have is an error; only a server with TLS refuses plain text."""
    (tmp_path / "file").touch()
    assert not is_listening(tmp_path / "file")
    assert not is_listening(tmp_path / ("x" * 200))
    for text in (f"unix:{tmp_path}/a", "192.0.2.1:4600", "127.0.0.1:1"):
        assert plain_text_refusal(parse_local_address(text)) is None


OLD, NEW = (str(Credential(id=number, secret=bytes(32))) for number in (1, 2))
FIRST, SECOND = (ssl.DER_cert_to_PEM_cert(der) for der in (b"first", b"second"))
PINNED = Trust(roots=FIRST, server_name="isochrone-collector")
IDENTITY = Identity(address=Address("127.0.0.1", 1), name="ida", role=Role.READER, trust=PINNED, credential=OLD)
IDENTITY = replace(IDENTITY, renew_at=100, expires_at=150)


@pytest.mark.parametrize(
    ("identity", "now_at", "due"),
    [
        (IDENTITY, 99, False),
        (IDENTITY, 100, True),
        (replace(IDENTITY, renew_at=None, expires_at=None), 10**18, False),
        (replace(IDENTITY, trust=PLAIN), 100, False),
    ],
)
def test_a_credential_is_renewed_when_that_is_due(identity: Identity, now_at: int, *, due: bool) -> None:
    """It is due from the named instant on, never without a lifetime, and never in plain text."""
    assert identity_file.is_due(identity, now_at=now_at) is due


def test_a_response_gives_credential_and_certificates() -> None:
    """The credential is replaced if there is one; certificates are pinned only where one is pinned already."""
    both = fleet_pb2.Renewed(credential=NEW, expires_at=300, renew_at=250, certificates=[FIRST, SECOND])
    later = identity_file.renewed(IDENTITY, both)
    assert (later.credential, later.expires_at, later.renew_at) == (NEW, 300, 250)
    assert later.trust.pins == (FIRST, SECOND)
    switched = identity_file.renewed(later, fleet_pb2.Renewed(certificates=[SECOND]))
    assert (switched.credential, switched.trust.pins) == (NEW, (SECOND,))
    by_authority = replace(IDENTITY, trust=Trust(roots=FIRST))
    assert identity_file.renewed(by_authority, both).trust == by_authority.trust


@pytest.mark.parametrize("response", [fleet_pb2.Renewed(credential="x"), fleet_pb2.Renewed(certificates=["not PEM"])])
def test_a_response_that_cannot_be_used_changes_nothing(response: fleet_pb2.Renewed) -> None:
    """A credential or certificate that is not valid never replaces a valid one."""
    with pytest.raises(ValueError, match=r"credential|PEM|header"):
        identity_file.renewed(IDENTITY, response)


def test_other_pins_are_noticed(tmp_path: Path) -> None:
    """Other pins are noticed, `join` during a renewal wins, and a renewal is the same for the same key only."""
    first, second = fingerprint_of(FIRST), fingerprint_of(SECOND)
    assert not identity_file.has_other_pins(IDENTITY, [first])
    assert identity_file.has_other_pins(IDENTITY, [first, second])
    assert not identity_file.has_other_pins(IDENTITY, [])
    assert not identity_file.has_other_pins(replace(IDENTITY, trust=Trust()), [second])
    path = tmp_path / "identity.json"
    other = replace(IDENTITY, credential=str(Credential(id=3, secret=bytes(32))))
    identity_file.write(path, other)
    assert not identity_file.store(path, IDENTITY, replace(IDENTITY, credential=NEW))
    assert identity_file.read(path) == other
    credential = Credential(id=1, secret=bytes(32))
    made = {derive_successor(credential, key) for key in (b"a", b"a", b"b")}
    assert len(made | {derive_successor(Credential(id=1, secret=bytes(31) + b"x"), b"a")}) == 3


@pytest.mark.parametrize(
    "prepare", [Path.stat, lambda path: path.chmod(0o400), Path.unlink, lambda path: os.utime(path, (1, 1))]
)
def test_a_command_does_not_fail_with_its_renewal(tmp_path: Path, prepare: Callable[[Path], Any]) -> None:
    """No collector, a file that cannot be written, no file: the present identity is used on."""
    path = tmp_path / "identity.json"
    now_at = time.time_ns() // 1000
    identity = replace(IDENTITY, renew_at=now_at - 1, expires_at=now_at + 10**9)
    identity_file.write(path, identity)
    prepare(path)
    assert identity_file.renew_if_due(path, identity) == identity
