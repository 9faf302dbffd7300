"""The certificate, the addresses to listen on, and the tuning of the process."""

import resource
import socket
from pathlib import Path

import pytest

from isochrone_collector.errors import StartError
from isochrone_collector.process_tuning import max_connections
from isochrone_collector.server import certificates
from isochrone_collector.server.certificates import Certificates
from isochrone_collector.server.listen_check import check_listen, check_unix_socket
from isochrone_collector.settings import Tls
from isochrone_common.address import Address, parse_local_address


def write_pair(files: Tls) -> None:
    assert files.certificate is not None
    assert files.key is not None
    chain, key = certificates._self_signed("127.0.0.1")
    files.key.write_bytes(key)
    files.certificate.write_bytes(chain)


def test_a_handshake_reads_no_files(tmp_path: Path) -> None:
    """A new pair is presented after `refresh` has loaded it, once: a flood of connections reads no files."""
    files = Tls(certificate=tmp_path / "certificate.pem", key=tmp_path / "key.pem", client_ca=None)
    write_pair(files)
    served = Certificates(files, data_dir=tmp_path, host="127.0.0.1")
    first = served.context("h2")
    write_pair(files)
    assert served.context("h2") is first
    served.refresh()
    second = served.context("h2")
    assert second is not first
    assert served.context("h2") is second


def test_an_authority_that_was_removed_is_not_trusted(tmp_path: Path) -> None:
    """After a change of the file of authorities, only the new ones sign certificates of clients."""
    files = Tls(certificate=tmp_path / "certificate.pem", key=tmp_path / "key.pem", client_ca=tmp_path / "ca.pem")
    write_pair(files)
    assert files.client_ca is not None
    trusted: list[list[bytes]] = []
    for _ in range(2):
        files.client_ca.write_bytes(certificates._self_signed("127.0.0.1")[0])
        if not trusted:
            served = Certificates(files, data_dir=tmp_path, host="127.0.0.1")
        served.refresh()
        trusted.append(
            served.context("h2").get_ca_certs(binary_form=True) + served.context().get_ca_certs(binary_form=True)
        )
    assert len(trusted[0]) == len(trusted[1])
    assert not set(trusted[0]) & set(trusted[1])


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
    """A socket in use, a missing folder, or a file in its place is named before anything starts."""
    path = tmp_path / "collector.sock"
    address = parse_local_address(f"unix:{path}")
    check_unix_socket(address)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(StartError, match="another process listens on it"):
            check_unix_socket(address)
    check_unix_socket(address)
    with pytest.raises(StartError, match="its folder does not exist"):
        check_unix_socket(parse_local_address(f"unix:{tmp_path}/missing/collector.sock"))
    with pytest.raises(StartError, match="its path has more than 103 bytes"):
        check_unix_socket(Address(f"unix:{tmp_path}/{'x' * 100}", 0))
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="another file"):
        check_unix_socket(parse_local_address(f"unix:{tmp_path}/file"))


@pytest.mark.parametrize(
    ("allowed", "connections"), [(resource.RLIM_INFINITY, 4_000), (65_536, 4_000), (1_024, 192), (256, 64), (64, 64)]
)
def test_listeners_share_the_open_files(monkeypatch: pytest.MonkeyPatch, allowed: int, connections: int) -> None:
    """Two listeners at their limits, of which gRPC takes three files for a connection, leave 256 files for the rest."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert max_connections(4_000) == connections
