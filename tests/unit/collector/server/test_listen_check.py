"""The check of the address to listen on."""

import socket
from pathlib import Path

import pytest

from isochrone_collector.errors import StartError
from isochrone_collector.server.listen_check import check_listen, check_unix_socket
from isochrone_common.address import Address, parse_local_address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_taken_port_is_refused_until_it_is_free(host: str) -> None:
    """A port with a listener is an error with a hint; afterwards the same port is free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = Address(host, listener.getsockname()[1])
        with pytest.raises(StartError, match=f"cannot listen on {taken}: address already in use") as refused:
            check_listen(taken)
        assert "choose another --listen" in refused.value.hint
    check_listen(taken)


def test_port_0_is_free() -> None:
    """Port 0 stands for any free port."""
    check_listen(Address("127.0.0.1", 0))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    """A name that cannot be resolved and an address that this machine does not have are errors with the reason."""
    with pytest.raises(StartError, match=f"cannot listen on {host}:4600: .+"):
        check_listen(Address(host, 4600))


def test_one_usable_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with an address of this machine and another one is accepted, as by gRPC."""
    here = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    there = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: [there, here])
    check_listen(Address("two.example", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: [there, there])
    with pytest.raises(StartError, match=r"cannot listen on two\.example:0"):
        check_listen(Address("two.example", 0))


def test_a_unix_socket_in_use_is_not_replaced(tmp_path: Path) -> None:
    """A socket on which a process listens is refused; without the process, what it left is replaced."""
    path = tmp_path / "collector.sock"
    address = parse_local_address(f"unix:{path}")
    check_unix_socket(address)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(StartError, match="another process listens on it"):
            check_unix_socket(address)
    check_unix_socket(address)


def test_a_unix_socket_needs_a_folder_and_no_other_file(tmp_path: Path) -> None:
    """A missing folder, and a file in the place of the socket, are named before anything starts."""
    with pytest.raises(StartError, match="its folder does not exist"):
        check_unix_socket(parse_local_address(f"unix:{tmp_path}/missing/collector.sock"))
    with pytest.raises(StartError, match="its path has more than 103 bytes"):
        check_unix_socket(Address(f"unix:{tmp_path}/{'x' * 100}", 0))
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="another file"):
        check_unix_socket(parse_local_address(f"unix:{tmp_path}/file"))
