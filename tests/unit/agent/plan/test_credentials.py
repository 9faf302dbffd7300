"""Keys are sent only to the origins in the agent's own file."""

from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_agent.errors import CredentialError
from isochrone_agent.plan.credentials import Credential, Keyring, describe_missing, load_keyring
from isochrone_wire.model import Target
from isochrone_wire.text import MAX_SHOWN_CHARS

GOOD = '[deepseek]\nenv = "ISOCHRONE_TEST_KEY"\nhosts = ["api.deepseek.com"]\n'
NAMES = ("deepseek", "nobody", None)


def target(base_url: str = "https://api.deepseek.com/v1", credential: str | None = "deepseek") -> Target:
    return Target(id=1, name="t", provider="p", model="m", base_url=base_url, credential=credential)


@pytest.fixture
def keyring_file(tmp_path: Path) -> Path:
    path = tmp_path / "credentials.toml"
    path.write_text(GOOD)
    return path


def test_a_key_is_found_for_its_host(keyring_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target on a listed host gets its key; another host, or one without a credential, gets none."""
    monkeypatch.setenv("ISOCHRONE_TEST_KEY", " sk-1 \n")
    keyring = load_keyring(keyring_file)
    assert keyring.key_for(target()) == "sk-1"
    assert keyring.key_for(target(credential=None)) is None
    assert "sk-1" not in repr(keyring)
    monkeypatch.setenv("ISOCHRONE_TEST_KEY", "sk-1")
    with pytest.raises(CredentialError, match=r"to https://evil\.example:443; allowed: https://api\.deep") as caught:
        load_keyring(keyring_file).key_for(target("https://evil.example/v1"))
    assert "hosts under [deepseek]" in caught.value.hint


@pytest.mark.parametrize(
    ("entry", "allowed", "forbidden"),
    [
        (
            "api.openai.com",
            ["https://api.openai.com/v1", "https://API.openai.com:443/v2"],
            [
                "http://api.openai.com/v1",
                "https://api.openai.com:4433/v1",
                "http://api.openai.com:443/v1",
                "https://api.openai.com.evil.example/v1",
                "no address",
            ],
        ),
        ("host:8443", ["https://host:8443/v1"], ["https://host/v1", "http://host:8443/v1"]),
        ("http://host", ["http://host/v1", "http://host:80/"], ["https://host/v1", "http://host:81/v1"]),
        ("http://host:8000", ["http://host:8000/v1"], ["http://host/v1", "https://host:8000/v1"]),
        ("127.0.0.1", ["http://127.0.0.1:8000/v1", "https://127.0.0.1/v1"], ["http://127.0.0.2:8000/v1"]),
        ("127.0.0.1:8000", ["http://127.0.0.1:8000/v1"], ["http://127.0.0.1:8001/v1"]),
        ("::1", ["http://[::1]:8000/v1"], ["http://127.0.0.1:8000/v1"]),
        ("[::1]:8000", ["http://[::1]:8000/v1"], ["http://[::1]:8001/v1"]),
        ("10.0.0.1", ["https://10.0.0.1/v1"], ["http://10.0.0.1/v1"]),
    ],
)
def test_a_key_stays_within_its_origin(entry: str, allowed: list[str], forbidden: list[str]) -> None:
    """Scheme, host and port are those of the agent's own file; plain text is allowed on this machine only."""
    credential = Credential(name="k", hosts=(entry,), env="K")
    assert [url for url in allowed + forbidden if credential.refusal(target(url)) is None] == allowed


OPENAI = target("https://api.openai.com/v1", "openai")


def test_a_catalogued_provider_needs_only_its_variable(keyring_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a provider means its variable and its own origin; the agent's own file goes first."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "sk-env")
    monkeypatch.setenv("ISOCHRONE_TEST_KEY", "sk-file")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-env")
    keyring = load_keyring(keyring_file)
    assert keyring.key_for(OPENAI) == "sk-env"
    assert keyring.describe(OPENAI) == ["openai (variable OPENAI_API_KEY)"]
    for elsewhere in ("https://evil.example/v1", "http://api.openai.com/v1", "https://api.openai.com:8443/v1"):
        with pytest.raises(CredentialError, match=r"allowed: https://api\.openai\.com:443"):
            keyring.key_for(target(elsewhere, "openai"))
    with pytest.raises(CredentialError, match="which this agent does not have"):
        keyring.key_for(target("https://evil.openai.azure.com/v1", "azure"))
    assert keyring.key_for(target()) == "sk-file"
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(CredentialError, match="which this agent does not have") as caught:
        keyring.key_for(OPENAI)
    assert caught.value.hint.endswith("or set OPENAI_API_KEY")


def test_a_missing_variable_is_named(keyring_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which variable is not set."""
    monkeypatch.delenv("ISOCHRONE_TEST_KEY", raising=False)
    with pytest.raises(CredentialError, match="ISOCHRONE_TEST_KEY is not set"):
        load_keyring(keyring_file).key_for(target())


@pytest.mark.parametrize(
    "key", ["sk-SECRET\nnote to self", "sk-SECRET other", "sk-SECRET\u2026", "sk-SECRET\u200b", "sk-SEC\0RET", ""]
)
def test_what_no_header_carries_is_no_key(tmp_path: Path, key: str) -> None:
    """A key with several lines or an invisible character is refused before any request, and is not printed."""
    secret = tmp_path / "key"
    secret.write_text(key + "\n")
    path = tmp_path / "credentials.toml"
    path.write_text(f'[deepseek]\nfile = "{secret}"\nhosts = ["api.deepseek.com"]\n')
    with pytest.raises(CredentialError, match="the key file") as caught:
        load_keyring(path).key_for(target())
    assert "SEC" not in f"{caught.value} {caught.value.hint}"


def test_a_key_file_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key file that is not text is an error; hosts are compared in their DNS form."""
    secret = tmp_path / "key"
    secret.write_bytes(b"sk-\xff\xfe")
    path = tmp_path / "credentials.toml"
    path.write_text(f'[deepseek]\nfile = "{secret}"\nhosts = ["api.deepseek.com"]\n')
    with pytest.raises(CredentialError, match="is not UTF-8 text"):
        load_keyring(path).key_for(target())
    monkeypatch.setenv("ISOCHRONE_TEST_KEY", "sk-1")
    path = tmp_path / "credentials.toml"
    path.write_text('[deepseek]\nenv = "ISOCHRONE_TEST_KEY"\nhosts = ["API.M\u00fcnchen.example"]\n')
    assert load_keyring(path).key_for(target("https://api.xn--mnchen-3ya.example/v1")) == "sk-1"


def test_all_problems_of_the_file_come_at_once(tmp_path: Path) -> None:
    """One error lists the faults of all tables, with the nearest name for each unknown key."""
    path = tmp_path / "credentials.toml"
    path.write_text('[a]\nenvv = "X"\nhosts = ["h", "https://h/"]\n[b]\nenv = "X"\n')
    with pytest.raises(CredentialError) as caught:
        load_keyring(path)
    message = str(caught.value)
    assert "did you mean 'env'" in message
    assert "[a] needs either env or file" in message
    assert "[b] needs hosts" in message
    assert "'https://h/' in hosts, which is not an origin" in message


def test_the_hint_names_the_option_or_the_file(keyring_file: Path) -> None:
    """For an unknown credential the hint names --credentials, or the file that was passed with it."""
    with pytest.raises(CredentialError, match="needs the credential 'mistral-eu'") as caught:
        Keyring().key_for(target(credential="mistral-eu"))
    assert caught.value.hint == (
        "write a [mistral-eu] table with env or file, and hosts, to a file, and pass it with --credentials FILE"
    )
    with pytest.raises(CredentialError) as caught:
        load_keyring(keyring_file).key_for(target(credential="mistral-eu"))
    assert caught.value.hint == f"add a [mistral-eu] table to {keyring_file}; known: deepseek"


def test_missing_keys_are_described_once_per_reason(keyring_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets with the same reason share a sentence, which names one of them; targets with a key are left out."""
    monkeypatch.delenv("ISOCHRONE_TEST_KEY", raising=False)
    targets = [replace(target(credential=name), name=f"x/{name or 'open'}-{n}") for n in (1, 2) for name in NAMES]
    missing = load_keyring(keyring_file).missing(targets)
    assert set(missing) == {f"x/{name}-{n}" for n in (1, 2) for name in NAMES if name}
    assert describe_missing(missing) == (
        "x/deepseek-1: the environment variable ISOCHRONE_TEST_KEY is not set (and 1 more like it); "
        "x/nobody-1 needs the credential 'nobody', which this agent does not have (and 1 more like it)"
    )
    assert describe_missing({}) == ""
    many = [replace(target(credential=f"k{number}"), name=f"x/{number}") for number in range(1_000)]
    assert len(describe_missing(Keyring().missing(many))) <= MAX_SHOWN_CHARS
