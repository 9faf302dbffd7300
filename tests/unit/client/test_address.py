"""Addresses: this machine in plain text, any other one with the identity that joining left."""

from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_client.address import Collector, resolve_collector
from isochrone_client.errors import AddressError
from isochrone_common import identity_file
from isochrone_common.address import parse_address
from isochrone_common.credentials import Credential
from isochrone_common.identity_file import Identity
from isochrone_common.trust import SYSTEM
from isochrone_wire.operations import Role

NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent", "XDG_DATA_HOME": "/nonexistent"}
IDENTITY = Identity(
    address=parse_address("collector.example:4600"),
    name="ida",
    role=Role.READER,
    trust=SYSTEM,
    credential=str(Credential(id=7, secret=bytes(32))),
    http_port=4690,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (None, "127.0.0.1:4680"),
        ("127.0.0.1:4690", "127.0.0.1:4690"),
        ("127.0.0.1", "127.0.0.1:4680"),
        ("127.8.0.1:1", "127.8.0.1:1"),
        ("localhost:5000", "localhost:5000"),
        ("[::1]:4601", "[::1]:4601"),
        ("::1", "[::1]:4680"),
        ("unix:/run/isochrone/collector.sock", "unix:/run/isochrone/collector.http.sock"),
        ("unix:collector.http.sock", "unix:collector.http.sock"),
    ],
)
def test_loopback_is_spoken_to(text: str | None, address: str) -> None:
    """Every notation of this machine is accepted, with port 4680 by default, and it is the default address."""
    assert str(resolve_collector(text, environment=NOWHERE)) == address
    assert resolve_collector(text, environment=NOWHERE).identity is None


@pytest.mark.parametrize("text", ["10.0.0.1:4600", "collector.example:4600", "[2001:db8::1]:4600", "0.0.0.0:4600"])
def test_other_machines_take_joining(text: str) -> None:
    """Another machine is refused with both ways to reach it."""
    with pytest.raises(AddressError, match="not on this machine") as caught:
        resolve_collector(text, environment=NOWHERE)
    assert caught.value.exit_code == 2
    assert "isochrone join" in caught.value.hint
    assert "ssh -L ./collector.http.sock:FOLDER/collector.http.sock" in caught.value.hint


@pytest.mark.parametrize("text", ["http://127.0.0.1:4600", "https://collector.example"])
def test_a_url_is_no_address(text: str) -> None:
    """A URL is refused as such, and is not taken for the name of another machine."""
    with pytest.raises(AddressError, match="is a URL: write host:port") as caught:
        resolve_collector(text, environment=NOWHERE)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", [":4600", "127.0.0.1:port", "127.0.0.1:70000"])
def test_nonsense_is_no_address(text: str) -> None:
    """An invalid address is a usage error with an example."""
    with pytest.raises(AddressError) as caught:
        resolve_collector(text, environment=NOWHERE)
    assert caught.value.exit_code == 2
    assert "127.0.0.1:4680" in caught.value.hint


def test_what_joining_left_is_found(tmp_path: Path) -> None:
    """The default is the collector that was joined; its identity is used at its two addresses only, at that of HTTP."""
    path = tmp_path / "isochrone" / "identity.json"
    identity_file.write(path, IDENTITY)
    here = {"XDG_CONFIG_HOME": str(tmp_path)}
    joined = Collector(parse_address("collector.example:4690"), IDENTITY, path)
    for text in (None, "collector.example:4600", "collector.example:4690"):
        assert resolve_collector(text, environment=here) == joined
    assert resolve_collector("127.0.0.1:9", environment=here) == Collector(parse_address("127.0.0.1:9"))
    with pytest.raises(AddressError, match="not on this machine"):
        resolve_collector("other.example", environment=here)


def test_the_source_of_an_address_is_named(tmp_path: Path) -> None:
    """Messages state from where an address comes that was not typed: a context, an identity file or the environment."""
    identity = tmp_path / "isochrone" / "identity.json"
    identity_file.write(identity, IDENTITY)
    here = {"XDG_CONFIG_HOME": str(tmp_path), "ISOCHRONE_COLLECTOR": "127.0.0.1:5"}
    assert resolve_collector(None, environment=here).named == f"collector.example:4690 (from {identity})"
    assert resolve_collector("127.0.0.1:5", environment=here).named == "127.0.0.1:5 (from ISOCHRONE_COLLECTOR)"
    assert resolve_collector("127.0.0.1:6", environment=here).named == "127.0.0.1:6"
    assert resolve_collector(None, environment=NOWHERE).named == "127.0.0.1:4680"
    contexts = (
        'current = "prod"\n[contexts.prod]\ncollector = "127.0.0.1:7"\n[contexts.far]\ncollector = "other.example"\n'
    )
    (tmp_path / "isochrone" / "config.toml").write_text(contexts)
    for name in (None, "prod"):
        assert resolve_collector(name, environment=here).named == "127.0.0.1:7 (from context prod)"
    with pytest.raises(AddressError, match=r"other\.example:4680 \(from context far\) is not on this machine"):
        resolve_collector("far", environment=here)


def test_a_passport_that_is_named_holds_anywhere(tmp_path: Path) -> None:
    """With --identity any address is used with that identity, for example the end of a tunnel."""
    file = tmp_path / "ida.json"
    identity_file.write(file, replace(IDENTITY, name="other"))
    assert resolve_collector("127.0.0.1:9", file, NOWHERE).identity == replace(IDENTITY, name="other")
    assert str(resolve_collector(None, file, NOWHERE)) == "collector.example:4690"


@pytest.mark.parametrize(("text", "words"), [(None, "cannot read"), ("{", "cannot be used")])
def test_a_passport_that_is_none_is_told(tmp_path: Path, text: str | None, words: str) -> None:
    """An unusable identity file is an error; there is no fallback to plain text."""
    file = tmp_path / "ida.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(AddressError, match=words):
        resolve_collector(None, file, NOWHERE)
