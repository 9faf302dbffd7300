"""Addresses of a collector on this machine: a port, or a Unix socket."""

import pytest

from isochrone_common.address import MAX_SOCKET_PATH_BYTES, Address, parse_address, parse_local_address


@pytest.mark.parametrize("path", ["/run/isochrone.sock", "collector.sock", "/" + "x" * (MAX_SOCKET_PATH_BYTES - 1)])
def test_a_unix_socket_is_on_this_machine(path: str) -> None:
    """`unix:` and a path is an address that only this machine reaches, and that reads as it was written."""
    address = parse_local_address(f"unix:{path}")
    assert str(address) == f"unix:{path}"
    assert address.is_loopback


@pytest.mark.parametrize("text", ["unix:", "unix:/" + "x" * MAX_SOCKET_PATH_BYTES, "unix:" + "é" * 60])
def test_a_path_that_no_socket_can_have(text: str) -> None:
    """An empty path, or one that is longer than the kernel's limit in bytes, is an error that states the limit."""
    with pytest.raises(ValueError, match=f"of 1 to {MAX_SOCKET_PATH_BYTES} bytes"):
        parse_local_address(text)


@pytest.mark.parametrize("text", ["127.0.0.1:5", "[::1]:5", "localhost", "collector.example:4600"])
def test_other_addresses_are_what_they_were(text: str) -> None:
    """Without `unix:` the address is a host and a port."""
    assert parse_local_address(text) == parse_address(text)


def test_a_unix_socket_has_no_port() -> None:
    """Where only a port makes sense, a path is an error."""
    with pytest.raises(ValueError, match="no valid port"):
        parse_address("unix:/run/isochrone.sock")
    assert parse_local_address("unix:/a") == Address("unix:/a", 0)
