"""The certificate that a server presents, while it switches to another one."""

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from fixtures.simulator import certificate_for
from isochrone_common.address import Address
from isochrone_common.trust import presented_certificate


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two certificates, each with its key beside it."""
    return [certificate_for(tmp_path_factory.mktemp(name), f"DNS:{name}.example") for name in ("old", "new")]


@contextmanager
def presenting(certificates: Sequence[Path]) -> Iterator[Address]:
    """A server that presents these certificates, one per connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=_handshakes, args=(listener, certificates), daemon=True)
        server.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        server.join(10)


def _handshakes(listener: socket.socket, certificates: Sequence[Path]) -> None:
    for certificate in certificates:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.parent / "key.pem")
        accepted, _ = listener.accept()
        try:
            with context.wrap_socket(accepted, server_side=True) as connection:
                connection.recv(1)
        except ssl.SSLError:
            accepted.close()  # by a client that refuses the certificate


def test_a_certificate_that_is_replaced_meanwhile(certificates: list[Path]) -> None:
    """The new one is returned when the server switches between the two connections of the look."""
    old, new = certificates
    with presenting([old, new, new, new]) as address:
        found = presented_certificate(address)
    assert found.name == "new.example"
    assert found.certificate.strip() == new.read_text().strip()


def test_a_certificate_that_cannot_be_used(tmp_path: Path) -> None:
    """One that has expired is not taken for one that was replaced."""
    expired = certificate_for(tmp_path, "DNS:a.example", ("20200101000000Z", "20200102000000Z"))
    with presenting([expired] * 3) as address, pytest.raises(ValueError, match="certificate has expired"):
        presented_certificate(address)
