"""The certificate of new gRPC connections."""

from pathlib import Path

from isochrone_collector.server import certificates
from isochrone_collector.server.certificates import Certificates
from isochrone_collector.settings import Tls


def write_pair(files: Tls) -> None:
    """Write a new pair."""
    assert files.certificate is not None
    assert files.key is not None
    chain, key = certificates._self_signed("127.0.0.1")
    files.key.write_bytes(key)
    files.certificate.write_bytes(chain)


def test_a_handshake_reads_no_files(tmp_path: Path) -> None:
    """A new pair is given to gRPC once, after `refresh` has loaded it. A flood of connections would otherwise check the
    files thousands of times, in the threads that serve the calls.
    """
    files = Tls(certificate=tmp_path / "certificate.pem", key=tmp_path / "key.pem", client_ca=None)
    write_pair(files)
    served = Certificates(files, data_dir=tmp_path, host="127.0.0.1")
    first = served.current
    write_pair(files)
    assert served._fetch() is None
    assert served.current is first
    served.refresh()
    assert served.current is not first
    assert [served._fetch() is None for _ in range(2)] == [False, True]
