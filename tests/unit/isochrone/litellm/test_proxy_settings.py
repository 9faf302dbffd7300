"""`callback_settings.isochrone` of a proxy."""

import ssl
from typing import Any

import pytest

from isochrone.litellm import SettingsError, arguments

GOOD: dict[str, Any] = {"url": "http://127.0.0.1:4680", "regions": ["us-east-2"], "deployments": {"mine": "x/a"}}


def test_good_settings() -> None:
    """They are the arguments of the callback."""
    assert arguments(GOOD) == GOOD


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"regoins": []}, "`regoins` is not a setting: use url, default_region"),
        ({"token": None}, "token has no value: is its environment variable set?"),
        ({"regions": "us-east-2"}, "regions is 'us-east-2': it has to be a list of texts"),
        ({"regions": ["us-east-2", ""]}, "it has to be a list of texts"),
        ({"deployments": ["x/a"]}, "it has to be a target by the id of each deployment"),
        ({"deployments": {"mine": 7}}, "it has to be a target by the id of each deployment"),
        ({"default_region": 7}, "default_region is 7: it has to be a text"),
    ],
)
def test_bad_settings(change: dict[str, Any], sentence: str) -> None:
    """Each error names the setting and what to do."""
    with pytest.raises(SettingsError, match=r"callback_settings\.isochrone") as caught:
        arguments(GOOD | change)
    assert sentence in str(caught.value)


def test_missing_settings() -> None:
    """Without an address there is nothing to follow."""
    with pytest.raises(SettingsError, match="has no `url`"):
        arguments({"regions": ["us-east-2"]})
    with pytest.raises(SettingsError, match="is missing"):
        arguments(None)


def test_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ca_file` becomes a TLS context."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: made if cafile == "ca.pem" else None)
    assert arguments(GOOD | {"ca_file": "ca.pem"}) == {**GOOD, "ssl_context": made}
