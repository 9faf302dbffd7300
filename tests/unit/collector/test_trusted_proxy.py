"""A trusted proxy: the header of the user counts only with the proof of the proxy."""

from pathlib import Path
from typing import Any

import pytest

from isochrone_collector.errors import SettingsError, Unauthenticated
from isochrone_collector.settings import Options
from isochrone_collector.settings import check as check_settings
from isochrone_collector.trusted_proxy import MAX_USER_CHARS, SECRET_VARIABLE, TrustedProxy, check

SECRET = "0123456789abcdef"
HEADER = "X-Forwarded-User"


def user_of(
    headers: dict[str, list[str]], address: str = "127.0.0.1", *, networks: tuple[str, ...] = (), secret: bool = True
) -> str | None:
    """The user of a request with these headers."""
    proxy = check(HEADER, None, networks, {SECRET_VARIABLE: SECRET} if secret else {})
    assert proxy is not None
    small = {name.lower(): values for name, values in headers.items()}
    return proxy.user_of(lambda name: small.get(name.lower(), []), address)


def proved(*users: str, secrets: tuple[str, ...] = (SECRET,)) -> dict[str, list[str]]:
    """Headers of the proxy."""
    return {HEADER: [*users], "X-Isochrone-Proxy-Secret": [*secrets]}


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        (proved("ida"), "ida"),
        (proved("ida@example.org "), "ida@example.org"),
        (proved("Zo\u00eb".encode().decode("latin-1")), "Zo\u00eb"),
        (proved(), None),
        (proved(""), None),
        ({HEADER: ["ida"]}, None),
        (proved("ida", secrets=("0123456789abcdeF",)), None),
        (proved("ida", secrets=("",)), None),
        (proved("ida", secrets=("\u00e9" * 16,)), None),
        (proved("ida", secrets=(SECRET, SECRET)), None),
        (proved("ida", secrets=("wrong", SECRET)), None),
    ],
)
def test_the_secret_proves_the_proxy(headers: dict[str, list[str]], user: str | None) -> None:
    """Without exactly one header with the secret the user is ignored."""
    assert user_of(headers) == user


@pytest.mark.parametrize(
    ("address", "networks", "user"),
    [
        ("192.0.2.7", ("192.0.2.7",), "ida"),
        ("192.0.2.7", ("192.0.2.0/28",), "ida"),
        ("::ffff:192.0.2.7", ("192.0.2.7",), "ida"),
        ("2001:db8::7", ("192.0.2.7", "2001:db8::/64"), "ida"),
        ("192.0.2.17", ("192.0.2.0/28",), None),
        ("2001:db8:1::7", ("2001:db8::/64",), None),
        ("", ("192.0.2.7",), None),
        ("testclient", ("192.0.2.7",), None),
    ],
)
@pytest.mark.parametrize("secret", [False, True])
def test_the_address_proves_the_proxy(address: str, networks: tuple[str, ...], user: str | None, secret: bool) -> None:  # noqa: FBT001  # a case of the table
    """With addresses only they count, and with a secret both."""
    assert user_of(proved("ida"), address, networks=networks, secret=secret) == user
    if secret:
        assert user_of({HEADER: ["ida"]}, address, networks=networks) is None


@pytest.mark.parametrize(
    "users", [["ida", "eve"], ["ida", ""], ["i\x01da"], ["\xff\xfe"], ["x" * (MAX_USER_CHARS + 1)], [" "]]
)
def test_a_user_is_one_readable_name(users: list[str]) -> None:
    """Two headers, of which one may be the client's own, and unreadable names are refused."""
    with pytest.raises(Unauthenticated, match="X-Forwarded-User"):
        user_of(proved(*users))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"user_header": HEADER}, "needs a proof"),
        ({"user_header": HEADER, "addresses": ["127.0.0.1"]}, "names this machine"),
        ({"user_header": HEADER, "addresses": ["192.0.2.7", "::1"]}, "names this machine"),
        ({"user_header": HEADER, "addresses": ["0.0.0.0/0"]}, "every address"),
        ({"user_header": HEADER, "addresses": ["proxy.example"]}, "--proxy-address"),
        ({"user_header": HEADER, "environment": {SECRET_VARIABLE: "short"}}, "16 to 500"),
        ({"user_header": HEADER, "environment": {SECRET_VARIABLE: "with some spaces in it"}}, "16 to 500"),
        ({"user_header": HEADER, "secret_file": Path("missing")}, "cannot be read"),
        ({"user_header": "Authorization", "environment": {SECRET_VARIABLE: SECRET}}, "not the name of a header"),
        ({"user_header": "X User", "environment": {SECRET_VARIABLE: SECRET}}, "not the name of a header"),
        ({"addresses": ["192.0.2.7"]}, "without --proxy-user-header"),
        ({"secret_file": Path("missing")}, "without --proxy-user-header"),
    ],
)
def test_settings_that_trust_too_much(given: dict[str, Any], reason: str) -> None:
    """Every setting with which others could name a user is an error, which never repeats the secret."""
    wanted: dict[str, Any] = {"user_header": None, "secret_file": None, "addresses": (), "environment": {}} | given
    with pytest.raises(SettingsError, match=reason) as refused:
        check(**wanted)
    assert "short" not in str(refused.value)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    """Without the name of a header there is no proxy, even with a secret; a file precedes the environment."""
    assert check(None, None, (), {SECRET_VARIABLE: SECRET}) is None
    file = tmp_path / "secret"
    file.write_text(f"{SECRET * 2}\n")
    found = check(HEADER, file, (), {SECRET_VARIABLE: SECRET})
    assert found == TrustedProxy(user_header=HEADER, secret=SECRET * 2)
    assert SECRET not in repr(found)


def test_it_contradicts_trust_in_this_machine() -> None:
    """Where every caller is an operator, a login protects nothing."""
    with pytest.raises(SettingsError, match="contradicts --trust-loopback"):
        check_settings({SECRET_VARIABLE: SECRET}, Options(trust_loopback=True, proxy_user_header=HEADER))
