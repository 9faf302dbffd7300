"""Settings of the agent: precedence, and errors that help."""

from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_agent.errors import SettingsError
from isochrone_agent.settings import (
    SPOOL_BYTES,
    Drain,
    checked_collector_address,
    default_data_dir,
    dial_options,
    load_settings,
    parse_size,
)
from isochrone_common import identity_file
from isochrone_common.address import parse_address
from isochrone_common.credentials import Credential
from isochrone_common.identity_file import Identity
from isochrone_common.trust import Trust
from isochrone_wire.operations import Role

OPTIONS = dict.fromkeys(
    ("vantage", "region", "collector", "data_dir", "credentials", "concurrency", "connect_to", "family", "ca_file")
)


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    """A value of the settings file is used unless a flag overrides it."""
    path = tmp_path / "agent.toml"
    path.write_text('vantage = "sg-1"\nregion = "ap-southeast-1"\nconcurrency = 4.0\n')
    assert load_settings(path, OPTIONS).concurrency == 4
    settings = load_settings(path, OPTIONS | {"concurrency": 2})
    assert (settings.vantage.name, settings.vantage.region, settings.concurrency) == ("sg-1", "ap-southeast-1", 2)


def test_unknown_keys_name_line_and_nearest(tmp_path: Path) -> None:
    """Unknown keys are named with line and nearest key; a collector on another machine requires joining first."""
    path = tmp_path / "agent.toml"
    path.write_text('vantag = "sg-1"\nregion = "x"\ncolector = "y"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings(path, OPTIONS)
    assert "line 1: unknown key 'vantag' (did you mean 'vantage'?)" in str(caught.value)
    assert "line 3: unknown key 'colector' (did you mean 'collector'?)" in str(caught.value)
    options = {"vantage": "a", "region": "b", "collector": "10.0.0.1:4600", "data_dir": str(tmp_path)}
    with pytest.raises(SettingsError, match="only spoken on loopback") as caught:
        load_settings(None, OPTIONS | options)
    assert "isochrone-agent join 10.0.0.1:4600" in caught.value.hint


def test_a_unix_socket_is_on_this_machine(tmp_path: Path) -> None:
    """An agent takes `unix:PATH` without joining."""
    options = {"vantage": "a", "region": "b", "collector": "unix:/run/collector.sock", "data_dir": str(tmp_path)}
    assert str(load_settings(None, OPTIONS | options).collector) == "unix:/run/collector.sock"


IDENTITY = Identity(
    address=parse_address("collector.example:4600"),
    name="sg-1",
    role=Role.VANTAGE,
    region="ap",
    trust=Trust(roots="PEM", server_name="isochrone-collector"),
    credential=str(Credential(id=7, secret=bytes(32))),
)


def test_an_agent_without_identity_uses_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an identity the collector is that of this user, which may start later; its port must be named."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("ISOCHRONE_UNIX_SOCKET", raising=False)
    monkeypatch.delenv("ISOCHRONE_DATA_DIR", raising=False)
    default = f"unix:{tmp_path}/isochrone/collector/collector.sock"
    assert str(checked_collector_address(None, None)) == default
    assert str(checked_collector_address("127.0.0.1", None)) == "127.0.0.1:4600"
    monkeypatch.setenv("ISOCHRONE_UNIX_SOCKET", "/run/i.sock")
    assert str(checked_collector_address(None, None)) == "unix:/run/i.sock"


def test_a_joined_agent_needs_no_options(tmp_path: Path) -> None:
    """Name, region and collector come from identity.json; a flag can set another address, such as a tunnel's."""
    identity_file.write(tmp_path / "identity.json", IDENTITY)
    settings = load_settings(None, OPTIONS | {"data_dir": str(tmp_path)})
    assert (settings.vantage.name, settings.vantage.region) == ("sg-1", "ap")
    assert (settings.collector, settings.identity) == (IDENTITY.address, IDENTITY)
    tunnelled = load_settings(None, OPTIONS | {"data_dir": str(tmp_path), "collector": "127.0.0.1:5"})
    assert (str(tunnelled.collector), tunnelled.identity) == ("127.0.0.1:5", IDENTITY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not an identity file"),
        ("[]", "not an identity file"),
        ("{}", "'address' is missing"),
        (identity_file.to_text(replace(IDENTITY, credential="geheim")), "must begin with 'isochrone-key-'"),
        (identity_file.to_text(replace(IDENTITY, role=Role.READER)), "a reader's, not a vantage's"),
        (identity_file.to_text(IDENTITY).replace('"vantage"', '"king"'), "king"),
    ],
)
def test_an_invalid_identity_file(tmp_path: Path, text: str, words: str) -> None:
    """An invalid identity file is an error with its path, which does not repeat the secret."""
    (tmp_path / "identity.json").write_text(text)
    with pytest.raises(SettingsError, match=r"identity\.json") as caught:
        load_settings(None, OPTIONS | {"data_dir": str(tmp_path)})
    assert words in str(caught.value)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("options", [{"vantage": "sg-2"}, {"region": "eu"}])
def test_options_must_match_the_identity(tmp_path: Path, options: dict[str, str]) -> None:
    """A name or region that contradicts the identity is an error, not a second vantage on one spool."""
    identity_file.write(tmp_path / "identity.json", IDENTITY)
    with pytest.raises(SettingsError, match="belongs to vantage sg-1 in ap, not"):
        load_settings(None, OPTIONS | {"data_dir": str(tmp_path)} | options)


def test_the_data_folder_is_named_after_the_vantage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vantage with a name has a folder of that name; without a name it uses the folder `default`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_data_dir("sg-1") == tmp_path / "isochrone" / "agent" / "sg-1"
    identity_file.write(default_data_dir(None) / "identity.json", IDENTITY)
    settings = load_settings(None, OPTIONS)
    assert settings.data_dir == tmp_path / "isochrone" / "agent" / "default"
    assert settings.vantage.name == "sg-1"
    with pytest.raises(SettingsError, match="--region must be given"):
        load_settings(None, OPTIONS | {"vantage": "de-1"})


def test_connect_to() -> None:
    """The format is curl's."""
    texts = ["api.example.com:443:127.0.0.1:8443", "a:1:[::1]:2"]
    expected = {("api.example.com", 443): ("127.0.0.1", 8443), ("a", 1): ("::1", 2)}
    assert dial_options(texts, "any").connect_to == expected


@pytest.mark.parametrize("text", ["", "a:1:b", "a:x:b:2", "a:1:b:2:c"])
def test_bad_connect_to(text: str) -> None:
    """Any other format is refused with an example."""
    with pytest.raises(SettingsError, match="HOST:PORT:ADDRESS:PORT"):
        dial_options([text], "any")


@pytest.mark.parametrize(
    ("text", "size"), [("100MB", 100_000_000), ("2G", 2_000_000_000), ("1500k", 1_500_000), (" 1000000 ", 1_000_000)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    """A size is a number with or without a decimal unit."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "10kB", "-5MB", "1.5GB", "100MiB"])
def test_invalid_sizes(text: str) -> None:
    """An invalid size, or one below 1 MB, is an error with an example."""
    with pytest.raises(SettingsError, match="at least 1 MB") as caught:
        parse_size(text)
    assert "100MB" in caught.value.hint


def test_limit_and_order_come_from_flags_or_file(tmp_path: Path) -> None:
    """Both have defaults and can be set; an unknown order is an error."""
    options = {"vantage": "a", "region": "b", "data_dir": str(tmp_path)}
    defaults = load_settings(None, options)
    assert (defaults.spool_limit_bytes, defaults.drain) == (SPOOL_BYTES, Drain.NEWEST)
    settings = load_settings(None, options | {"spool_limit": "5MB", "drain": "oldest"})
    assert (settings.spool_limit_bytes, settings.drain) == (5_000_000, Drain.OLDEST)
    with pytest.raises(SettingsError, match="drain 'sideways' is not valid"):
        load_settings(None, options | {"drain": "sideways"})
    for empty in ("spool_limit", "drain", "keep_delivered"):
        with pytest.raises(SettingsError):
            load_settings(None, options | {empty: ""})
