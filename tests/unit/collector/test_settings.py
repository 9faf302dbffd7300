"""Settings: TLS, retention, receivers, and the trusted proxy; no message has a secret."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from isochrone_collector import trusted_proxy, webhook_signature
from isochrone_collector.errors import SettingsError, Unauthenticated
from isochrone_collector.names import NameFilter
from isochrone_collector.region_places import RegionPlace
from isochrone_collector.settings import Options, RetentionPeriods, Settings, Tls, check, parse_address
from isochrone_collector.trusted_proxy import MAX_USER_CHARS, SECRET_VARIABLE, TrustedProxy
from isochrone_wire.model import DAY_US


def checked(*, environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    return check(environment or {}, Options(**given))


def usual(**told: Any) -> Settings:
    return checked(listen="127.0.0.1:0", **told)


@pytest.mark.parametrize("text", ["", ":4600", "127.0.0.1:x", "h:65536", "h:-1"])
def test_what_is_no_address(text: str) -> None:
    """An invalid address is a SettingsError with an example."""
    with pytest.raises(SettingsError, match="host:port") as refused:
        parse_address(text)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "[::]", "collector.example", "8.8.8.8"])
def test_plain_text_stays_on_this_machine(host: str) -> None:
    """An address that other machines can reach, or a host name, uses TLS by default."""
    assert checked(listen=f"{host}:4600").tls == Tls()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_loopback_is_trusted_only_on_request(host: str) -> None:
    """Loopback addresses require TLS unless they are trusted; HTTP uses it there only if TLS is asked for."""
    pem = Path("a.pem")
    asked: tuple[tuple[dict[str, Any], Tls | None, bool], ...] = (
        ({}, Tls(), False),
        ({"trust_loopback": True}, None, False),
        ({"tls": True}, Tls(), True),
        ({"client_ca": pem}, Tls(client_ca=pem), True),
        ({"certificate": pem, "key": pem}, Tls(certificate=pem, key=pem), True),
    )
    for told, tls, https in asked:
        settings = checked(listen=f"{host}:0", **told)
        assert settings.listen.is_loopback
        assert (settings.tls, settings.https) == (tls, https)


def test_the_unix_socket_is_in_the_data_folder() -> None:
    """The Unix socket is in the data folder, in the given place, which must be possible, or nowhere."""
    asked: tuple[dict[str, Any], ...] = ({}, {"trust_loopback": True}, {"tls": True})
    for told in asked:
        usual_place = checked(listen="[::1]:0", data_dir=Path("/d"), environment={}, **told)
        assert (str(usual_place.unix_socket), usual_place.unix_socket_required) == ("unix:/d/collector.sock", False)
        given = usual(unix_socket="/run/collector.sock", **told)
        assert (str(given.unix_socket), given.unix_socket_required) == ("unix:/run/collector.sock", True)
    assert usual(unix_socket="off").unix_socket is None
    with pytest.raises(SettingsError, match="of 1 to 103 bytes") as refused:
        usual(unix_socket="x" * 200)
    assert "--unix-socket" in refused.value.hint


def test_the_data_folder_follows_xdg() -> None:
    """A flag wins over XDG_DATA_HOME, which wins over the home folder; the result is absolute."""
    by_flag = checked(listen="[::1]:0", data_dir=Path("x"), environment={"XDG_DATA_HOME": "/y"})
    by_xdg = checked(listen="[::1]:0", environment={"XDG_DATA_HOME": "/y"})
    by_home = checked(listen="[::1]:0")
    assert by_flag.data_dir == Path.cwd() / "x"
    assert by_xdg.data_dir == Path("/y/isochrone/collector")
    assert by_home.data_dir.parts[-4:] == (".local", "share", "isochrone", "collector")


def test_settings_keep_the_password_to_themselves() -> None:
    """The repr of the settings may land in a log; the database URL is not in it."""
    url = "postgresql://u:geheim@h/d"
    chosen = checked(listen="[::1]:0", database_url=url)
    assert chosen.database_url == url
    assert "geheim" not in repr(chosen)


@pytest.mark.parametrize(
    ("told", "periods"),
    [
        ({}, RetentionPeriods(samples_us=35 * DAY_US, hours_us=100 * DAY_US, days_us=1095 * DAY_US)),
        ({"keep_samples": "7d"}, RetentionPeriods(samples_us=7 * DAY_US)),
        ({"keep_samples": "forever"}, RetentionPeriods(samples_us=None)),
        (
            {"keep_samples": "0", "keep_hours": "0", "keep_days": "0"},
            RetentionPeriods(samples_us=None, hours_us=None, days_us=None),
        ),
        (
            {"keep_samples": "2d", "keep_hours": "48h", "keep_days": "2d"},
            RetentionPeriods(samples_us=2 * DAY_US, hours_us=2 * DAY_US, days_us=2 * DAY_US),
        ),
        ({"keep_incidents": "30d"}, RetentionPeriods(incidents_us=30 * DAY_US)),
        ({"keep_incidents": "forever"}, RetentionPeriods(incidents_us=None)),
        ({"keep_days": "999999999999d"}, RetentionPeriods(days_us=None)),
    ],
)
def test_how_long_things_are_kept(told: dict[str, str], periods: RetentionPeriods) -> None:
    """Retention periods are durations, or one of two words for unlimited."""
    assert usual(**told).retention == periods


@pytest.mark.parametrize(("told", "expected_us"), [("25s", 25_000_000), ("1ms", 1_000), ("1h", 3_600_000_000)])
def test_a_question_has_a_limit(told: str, expected_us: int) -> None:
    """The time limit of a query is a duration, by default 25 s."""
    told_nothing = checked(listen="[::1]:0")
    assert told_nothing.question_timeout_us == 25_000_000
    settings = checked(listen="[::1]:0", question_timeout=told)
    assert settings.question_timeout_us == expected_us


SECRET = webhook_signature.format_secret(b"a secret of thirty-two bytes 123")


def hooked(*, environment: dict[str, str], **told: Any) -> Settings:
    return checked(listen="127.0.0.1:0", environment=environment, **told)


def test_a_webhook_has_an_address_and_a_secret(tmp_path: Path) -> None:
    """The secret comes from a file, else from the environment; neither it nor the address is in any repr."""
    file = tmp_path / "alert.secret"
    file.write_text(SECRET + "\n")
    url = "https://user:pass@hooks.example:8443/T0/token?x=1"
    ways: tuple[tuple[dict[str, Any], dict[str, str]], ...] = (
        ({"alert_secret_file": file}, {}),
        ({}, {"ISOCHRONE_ALERT_SECRET": SECRET}),
    )
    for how, environment in ways:
        checked = hooked(alert_url=url, environment=environment, **how)
        [receiver] = checked.receivers
        assert receiver.secret == webhook_signature.parse_secret(SECRET)
        assert receiver.shown == "https://hooks.example:8443"
        assert not any(part in repr(checked) for part in (SECRET, "token", "pass", "thirty"))


@pytest.mark.parametrize(
    ("listen", "http", "expected"),
    [
        ("127.0.0.1:0", "off", None),
        ("127.0.0.1:0", "127.0.0.1", "127.0.0.1:4680"),
        ("127.0.0.1:0", "[::1]:81", "[::1]:81"),
        ("0.0.0.0:0", "127.0.0.1:4680", "127.0.0.1:4680"),
        ("127.0.0.1:0", "0.0.0.0:4680", "0.0.0.0:4680"),
    ],
)
def test_http_keeps_the_rule_of_grpc(listen: str, http: str, expected: str | None) -> None:
    """If other machines can reach one of the two addresses, HTTP uses TLS too."""
    settings = checked(listen=listen, http_listen=http)
    assert (str(settings.http) if settings.http else None) == expected
    assert settings.https == ("0.0.0.0" in listen + http)


def test_targets_of_the_public_page() -> None:
    """Patterns of targets are those of the public page: without it they are an error, not ignored."""
    chosen = usual(public_page=True, public_target=("openai/*",), private_target=("*-internal",))
    assert chosen.public_targets == NameFilter(allowed=("openai/*",), denied=("*-internal",))
    assert usual(public_page=True).public_targets == NameFilter()
    for option in ("public_target", "private_target"):
        with pytest.raises(SettingsError, match=f"--{option.replace('_', '-')} without --public-page"):
            usual(**{option: ("openai/*",)})


def test_places_of_regions() -> None:
    """Places are given one by one; one that cannot be read is a SettingsError with an example."""
    chosen = usual(region_location=("lab=48.14,11.58", "attic=-33.9,151.2"))
    assert chosen.region_places["lab"] == RegionPlace(latitude=48.14, longitude=11.58)
    assert chosen.region_places["attic"] == RegionPlace(latitude=-33.9, longitude=151.2)
    with pytest.raises(SettingsError, match="--region-location: `lab` has no region") as refused:
        usual(region_location=("lab",))
    assert "lab=48.14,11.58" in (refused.value.hint or "")


PROXY_SECRET = "0123456789abcdef"
HEADER = "X-Forwarded-User"


def user_of(
    headers: dict[str, list[str]], address: str = "127.0.0.1", *, networks: tuple[str, ...] = (), secret: bool = True
) -> str | None:
    proxy = trusted_proxy.check(HEADER, None, networks, {SECRET_VARIABLE: PROXY_SECRET} if secret else {})
    assert proxy is not None
    small = {name.lower(): values for name, values in headers.items()}
    return proxy.user_of(lambda name: small.get(name.lower(), []), address)


def proved(*users: str, secrets: tuple[str, ...] = (PROXY_SECRET,)) -> dict[str, list[str]]:
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
        (proved("ida", secrets=(PROXY_SECRET, PROXY_SECRET)), None),
        (proved("ida", secrets=("wrong", PROXY_SECRET)), None),
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
        ({"user_header": "Authorization", "environment": {SECRET_VARIABLE: PROXY_SECRET}}, "not the name of a header"),
        ({"user_header": "X User", "environment": {SECRET_VARIABLE: PROXY_SECRET}}, "not the name of a header"),
        ({"addresses": ["192.0.2.7"]}, "without --proxy-user-header"),
        ({"secret_file": Path("missing")}, "without --proxy-user-header"),
    ],
)
def test_settings_that_trust_too_much(given: dict[str, Any], reason: str) -> None:
    """Every setting with which others could name a user is an error, which never repeats the secret."""
    wanted: dict[str, Any] = {"user_header": None, "secret_file": None, "addresses": (), "environment": {}} | given
    with pytest.raises(SettingsError, match=reason) as refused:
        trusted_proxy.check(**wanted)
    assert "short" not in str(refused.value)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    """Without the name of a header there is no proxy, even with a secret; a file precedes the environment."""
    assert trusted_proxy.check(None, None, (), {SECRET_VARIABLE: PROXY_SECRET}) is None
    file = tmp_path / "secret"
    file.write_text(f"{PROXY_SECRET * 2}\n")
    found = trusted_proxy.check(HEADER, file, (), {SECRET_VARIABLE: PROXY_SECRET})
    assert found == TrustedProxy(user_header=HEADER, secret=PROXY_SECRET * 2)
    assert PROXY_SECRET not in repr(found)


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"listen": "0.0.0.0:0", "trust_loopback": True}, "--trust-loopback contradicts TLS", "omit"),
        ({"http_listen": "0.0.0.0:0", "trust_loopback": True}, "--trust-loopback contradicts TLS", "omit"),
        ({"tls": True, "trust_loopback": True}, "--trust-loopback contradicts TLS", "omit"),
        ({"trust_loopback": True, "proxy_user_header": HEADER}, "contradicts --trust-loopback", "omit"),
        ({"certificate": Path("a.pem")}, "--certificate without --key", "both"),
        ({"key": Path("a.pem")}, "--key without --certificate", "both"),
        ({"http_listen": "127.0.0.1:port"}, "port", "--http-listen 127.0.0.1:4680"),
        # Hours outlast late samples and days outlast hours, or summaries would lose what they had.
        ({"keep_samples": "1d"}, "--keep-samples 1d is too short", "at least 2d"),
        ({"keep_samples": "35"}, "--keep-samples", "forever"),
        ({"keep_samples": "never"}, "--keep-samples: 'never' is not a duration", "forever"),
        ({"keep_hours": "32d"}, "--keep-hours 32d is too short", "at least"),
        ({"keep_samples": "10d", "keep_hours": "9d"}, "--keep-hours 9d is too short", "at least"),
        ({"keep_samples": "forever", "keep_hours": "20d"}, "--keep-hours 20d is too short", "at least"),
        ({"keep_incidents": "23h"}, "--keep-incidents 23h is too short", "at least"),
        ({"keep_days": "99d"}, "--keep-days 99d is too short", "at least"),
        ({"keep_hours": "forever", "keep_days": "100d"}, "--keep-days 100d is too short", "forever"),
        *(({"question_timeout": text}, "^--question-timeout", "") for text in ("", "25", "0s", "999us", "61m", "-5s")),
        *(
            ({"alert_url": url}, "not an http or https URL", "http")
            for url in ("h/x-token", "ftp://h/x-token", "http://")
        ),
        ({"alert_url": "http://h:x-token/"}, "not an http or https URL", "http"),
        ({"alert_url": "http://127.0.0.1:1/"}, "--alert-url needs a secret", "alerts secret"),
    ],
)
def test_settings_that_are_refused(given: dict[str, Any], message: str, hint: str) -> None:
    """A setting that is impossible or contradicts another is an error with a hint, and no secret."""
    with pytest.raises(SettingsError, match=message) as refused:
        checked(**{"listen": "127.0.0.1:0", "environment": {SECRET_VARIABLE: PROXY_SECRET}, **given})
    assert hint in (refused.value.hint or "")
    assert "x-token" not in str(refused.value)


@pytest.mark.parametrize("secret", ["hunter2", "whsec_short"])
def test_a_secret_that_is_none_is_not_repeated(secret: str) -> None:
    """A webhook without a valid secret is refused with a hint that does not repeat the input."""
    with pytest.raises(SettingsError) as refused:
        hooked(alert_url="http://127.0.0.1:1/", environment={"ISOCHRONE_ALERT_SECRET": secret})
    assert "alerts secret" in refused.value.hint
    assert secret not in str(refused.value)
