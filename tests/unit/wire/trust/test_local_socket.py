"""The Unix socket of this user's collector: where commands and agents look for it."""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isochrone_common.address import parse_local_address
from isochrone_common.local_socket import default_socket, is_listening, plain_text_refusal, select_collector


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, as a socket needs."""
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
    """The variable of `serve` for the socket precedes that for the data folder, which precedes the default folder; for
    HTTP it is the socket beside each.
    """
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


def test_an_agent_waits_for_the_socket(home: Path) -> None:
    """An agent that starts before its collector takes the place where the socket will be; the data folder in its
    environment is its own.
    """
    environment = {"ISOCHRONE_DATA_DIR": str(home / "agent"), "XDG_DATA_HOME": str(home)}
    assert str(default_socket(environment)) == f"unix:{home}/isochrone/collector/collector.sock"
    with listening(home / "agent/collector.sock"):
        assert str(default_socket(environment)) == f"unix:{home}/agent/collector.sock"
    assert str(default_socket(environment | {"ISOCHRONE_UNIX_SOCKET": "/run/i.sock"})) == "unix:/run/i.sock"
    assert str(default_socket(environment | {"ISOCHRONE_UNIX_SOCKET": "off"})).endswith("/collector.sock")


def test_nobody_listens_on_a_file_or_a_long_path(tmp_path: Path) -> None:
    """Neither another file nor a path that no socket can have is an error."""
    (tmp_path / "file").touch()
    assert not is_listening(tmp_path / "file")
    assert not is_listening(tmp_path / ("x" * 200))


def test_only_a_server_with_tls_refuses_plain_text(tmp_path: Path) -> None:
    """A socket, another machine and a free port refuse for other reasons."""
    for text in (f"unix:{tmp_path}/a", "192.0.2.1:4600", "127.0.0.1:1"):
        assert plain_text_refusal(parse_local_address(text)) is None
