"""Settings: no address that leaks, no password that shows."""

from pathlib import Path

import pytest

from isochrone_collector.errors import SettingsError
from isochrone_collector.settings import check, parse_address


@pytest.mark.parametrize("text", ["", ":4600", "127.0.0.1:x", "h:65536", "h:-1"])
def test_what_is_no_address(text: str) -> None:
    """What is not host:port is refused with an example, as a matter of settings."""
    with pytest.raises(SettingsError, match="host:port") as refused:
        parse_address(text)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "[::]", "collector.example", "8.8.8.8"])
def test_plain_text_stays_on_this_machine(host: str) -> None:
    """An address others can reach, or a name that might be one, is refused as long as there is no TLS."""
    with pytest.raises(SettingsError, match="TLS"):
        check(listen=f"{host}:4600", database_url=None, data_dir=None, environment={})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_loopback_is_fine(host: str) -> None:
    """Every way to say this machine is taken."""
    assert check(listen=f"{host}:0", database_url=None, data_dir=None, environment={}).listen.is_loopback


def test_the_data_folder_follows_xdg() -> None:
    """A flag wins over XDG_DATA_HOME, which wins over the home folder; the result is absolute."""
    by_flag = check(listen="[::1]:0", database_url=None, data_dir=Path("x"), environment={"XDG_DATA_HOME": "/y"})
    by_xdg = check(listen="[::1]:0", database_url=None, data_dir=None, environment={"XDG_DATA_HOME": "/y"})
    by_home = check(listen="[::1]:0", database_url=None, data_dir=None, environment={})
    assert by_flag.data_dir == Path.cwd() / "x"
    assert by_xdg.data_dir == Path("/y/isochrone/collector")
    assert by_home.data_dir.parts[-4:] == (".local", "share", "isochrone", "collector")


def test_settings_keep_the_password_to_themselves() -> None:
    """The repr of the settings may land in a log; the database URL is not in it."""
    url = "postgresql://u:geheim@h/d"
    chosen = check(listen="[::1]:0", database_url=url, data_dir=None, environment={})
    assert chosen.database_url == url
    assert "geheim" not in repr(chosen)
