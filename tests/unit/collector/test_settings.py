"""Settings: no address that leaks, no password that shows."""

from pathlib import Path
from typing import Any

import pytest

from isochrone_collector.errors import SettingsError
from isochrone_collector.settings import Tls, check, parse_address


@pytest.mark.parametrize("text", ["", ":4600", "127.0.0.1:x", "h:65536", "h:-1"])
def test_what_is_no_address(text: str) -> None:
    """What is not host:port is refused with an example, as a matter of settings."""
    with pytest.raises(SettingsError, match="host:port") as refused:
        parse_address(text)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "[::]", "collector.example", "8.8.8.8"])
def test_plain_text_stays_on_this_machine(host: str) -> None:
    """An address others can reach, or a name that might be one, speaks TLS without being told."""
    assert check(listen=f"{host}:4600", database_url=None, data_dir=None, environment={}).tls == Tls()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_on_loopback_tls_is_for_who_wants_it(host: str) -> None:
    """Every way to say this machine is plain text, unless TLS is asked for, or files of it are given."""
    pem = Path("a.pem")
    asked: tuple[tuple[dict[str, Any], Tls | None], ...] = (
        ({}, None),
        ({"tls": True}, Tls()),
        ({"client_ca": pem}, Tls(client_ca=pem)),
        ({"certificate": pem, "key": pem}, Tls(certificate=pem, key=pem)),
    )
    for told, tls in asked:
        settings = check(listen=f"{host}:0", database_url=None, data_dir=None, environment={}, **told)
        assert settings.listen.is_loopback
        assert settings.tls == tls


@pytest.mark.parametrize("alone", ["certificate", "key"])
def test_a_certificate_has_a_key(alone: str) -> None:
    """One of the two files without the other is an error that names the missing one."""
    told: dict[str, Any] = {alone: Path("a.pem")}
    with pytest.raises(
        SettingsError, match=f"--{alone} without --{'key' if alone == 'certificate' else 'certificate'}"
    ):
        check(listen="127.0.0.1:0", database_url=None, data_dir=None, environment={}, **told)


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
