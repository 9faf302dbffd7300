"""Addresses: without TLS, only this machine is asked."""

import pytest

from isochrone_client.address import loopback_address
from isochrone_client.errors import AddressError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4600", "127.0.0.1:4600"),
        ("127.0.0.1", "127.0.0.1:4600"),
        ("127.8.0.1:1", "127.8.0.1:1"),
        ("localhost:5000", "localhost:5000"),
        ("[::1]:4601", "[::1]:4601"),
        ("::1", "[::1]:4600"),
    ],
)
def test_loopback_is_spoken_to(text: str, address: str) -> None:
    """Every way to write this machine is taken, with 4600 where no port is said."""
    assert loopback_address(text) == address


@pytest.mark.parametrize("text", ["10.0.0.1:4600", "collector.example:4600", "[2001:db8::1]:4600", "0.0.0.0:4600"])
def test_other_machines_need_tls(text: str) -> None:
    """Another machine is refused with a way to reach it all the same."""
    with pytest.raises(AddressError, match="not on this machine") as caught:
        loopback_address(text)
    assert caught.value.exit_code == 2
    assert "ssh -L 4600:127.0.0.1:4600" in caught.value.hint


@pytest.mark.parametrize("text", ["", ":4600", "127.0.0.1:port", "127.0.0.1:70000"])
def test_nonsense_is_no_address(text: str) -> None:
    """What cannot be an address is a usage error that shows one."""
    with pytest.raises(AddressError) as caught:
        loopback_address(text)
    assert caught.value.exit_code == 2
    assert "127.0.0.1:4600" in caught.value.hint
