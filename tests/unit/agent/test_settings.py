"""Settings of the agent: precedence, and errors that help."""

from pathlib import Path

import pytest

from isochrone_agent.errors import SettingsError
from isochrone_agent.settings import gather_settings, parse_connect_to
from isochrone_wire.address import parse_address

OPTIONS = dict.fromkeys(
    ("vantage", "region", "collector", "data_dir", "credentials", "concurrency", "connect_to", "family", "ca_file")
)


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    """What the file says holds unless a flag says otherwise."""
    path = tmp_path / "agent.toml"
    path.write_text('vantage = "sg-1"\nregion = "ap-southeast-1"\nconcurrency = 4\n')
    settings = gather_settings(path, OPTIONS | {"concurrency": 2})
    assert (settings.vantage.name, settings.vantage.region, settings.concurrency) == ("sg-1", "ap-southeast-1", 2)


def test_unknown_keys_name_line_and_nearest(tmp_path: Path) -> None:
    """Every unknown key is told at once, with its line and the nearest known key."""
    path = tmp_path / "agent.toml"
    path.write_text('vantag = "sg-1"\nregion = "x"\ncolector = "y"\n')
    with pytest.raises(SettingsError) as caught:
        gather_settings(path, OPTIONS)
    assert "line 1: unknown key 'vantag', did you mean 'vantage'" in str(caught.value)
    assert "line 3: unknown key 'colector', did you mean 'collector'" in str(caught.value)


def test_plain_text_stays_on_this_machine() -> None:
    """A collector elsewhere is refused as long as there is no TLS."""
    with pytest.raises(SettingsError, match="only spoken on loopback"):
        gather_settings(None, OPTIONS | {"vantage": "a", "region": "b", "collector": "10.0.0.1:4600"})


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("api.example.com:443:127.0.0.1:8443", (("api.example.com", 443), ("127.0.0.1", 8443))),
        ("a:1:[::1]:2", (("a", 1), ("::1", 2))),
    ],
)
def test_connect_to(text: str, pair: tuple[tuple[str, int], tuple[str, int]]) -> None:
    """Written as curl writes it."""
    assert parse_connect_to([text]) == dict([pair])


@pytest.mark.parametrize("text", ["", "a:1:b", "a:x:b:2", "a:1:b:2:c"])
def test_bad_connect_to(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(SettingsError, match="HOST:PORT:ADDRESS:PORT"):
        parse_connect_to([text])


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
def test_addresses(text: str, host: str, port: int, loopback: bool) -> None:  # noqa: FBT001  # a case's field
    """Host, port and whether it is this machine."""
    address = parse_address(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, loopback)
