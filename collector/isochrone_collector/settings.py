"""Settings of `serve`, validated once, before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isochrone_collector import receivers, region_places, trusted_proxy, webhook_signature
from isochrone_collector.errors import SettingsError
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.receivers import Format, Receiver
from isochrone_collector.region_places import RegionPlace
from isochrone_collector.trusted_proxy import TrustedProxy
from isochrone_common import address as wire_address
from isochrone_common import local_socket
from isochrone_common.address import DEFAULT_HTTP_PORT, DEFAULT_PORT, Address
from isochrone_wire import durations
from isochrone_wire.model import DAY_US, SECOND_US

DEFAULT_LISTEN = f"127.0.0.1:{DEFAULT_PORT}"
DEFAULT_HTTP_LISTEN = f"127.0.0.1:{DEFAULT_HTTP_PORT}"
_SECRET_HINT = "create one with `isochrone-collector alerts secret > FILE`, and set --alert-secret-file FILE"
DEFAULT_DISK_LOW_PERCENT = 15.0
FOREVER = ("forever", "0")
WEBHOOK = "webhook"
"""Name of the receiver of `--alert-url`."""
MAX_LATENESS_US = 33 * DAY_US
"""Maximum age in microseconds at which a sample still has its hour summarised again."""
# Longer than any data exists; an instant that long ago may be out of PostgreSQL's range.
_LONGEST_US = 36_500 * DAY_US
# A little less than a reader's default timeout, so that the reader gets the reason.
DEFAULT_QUESTION_TIMEOUT_US = 25 * SECOND_US
# A longer query would outlive its client.
_MAX_QUESTION_TIMEOUT_US = 3600 * SECOND_US
_MIN_QUESTION_TIMEOUT_US = SECOND_US // 1000


def parse_address(text: str) -> Address:
    """Parse `host:port` or `[ipv6]:port`; the port has a default. Raises `SettingsError`."""
    try:
        return wire_address.parse_address(text)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def parse_collector(text: str) -> Address:
    """Parse the address of a collector, also `unix:PATH`. Raises `SettingsError`."""
    try:
        return wire_address.parse_local_address(text)
    except ValueError as error:
        raise SettingsError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS, which also requires credentials. Without the operator's files a certificate is made in the data folder;
    `client_ca` is a file of authorities (PEM), one of which must have signed the certificate of every client.
    """

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPeriods:
    """Retention periods in microseconds; `None` is unlimited. Summaries of hours are kept for longer than samples may
    be late, because days are made from them. `incidents_us` is also that of alerts and silences.
    """

    samples_us: int | None = 35 * DAY_US
    hours_us: int | None = 100 * DAY_US
    days_us: int | None = 1095 * DAY_US
    incidents_us: int | None = 400 * DAY_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of `serve`. Without `database_url` an embedded PostgreSQL keeps its files in `data_dir`. Without
    `tls` connections are in plain text, and every process of this machine has all permissions. Without `https`, which
    implies `tls`, HTTP is in plain text.
    """

    listen: Address
    data_dir: Path
    tls: Tls | None = None
    https: bool = False
    # Where it is not required, a socket that cannot be made is only logged.
    unix_socket: Address | None = None
    unix_socket_required: bool = False
    http: Address | None = None
    # Further names of this machine in requests over HTTP without TLS.
    http_hosts: tuple[str, ...] = ()
    # Whether the status of targets needs no credential.
    public_page: bool = False
    # The targets that it has.
    public_targets: NameFilter = EVERY_NAME
    proxy: TrustedProxy | None = None
    retention: RetentionPeriods = RetentionPeriods()
    receivers: tuple[Receiver, ...] = ()
    # The share of the disk of the embedded PostgreSQL below which there is little room.
    disk_low_percent: float = DEFAULT_DISK_LOW_PERCENT
    # The database's time limit for one query of a reader.
    question_timeout_us: int = DEFAULT_QUESTION_TIMEOUT_US
    # The places of regions that are not those of a well-known cloud region.
    region_places: Mapping[str, RegionPlace] = field(default_factory=dict)
    # May contain a password, so it is never in a repr or a log; see `pool.describe`.
    database_url: str | None = field(default=None, repr=False)


def check(
    *,
    listen: str,
    database_url: str | None,
    data_dir: Path | None,
    environment: Mapping[str, str],
    tls: bool = False,
    trust_loopback: bool = False,
    certificate: Path | None = None,
    key: Path | None = None,
    client_ca: Path | None = None,
    unix_socket: str | None = None,
    http_listen: str | None = None,
    http_host: Sequence[str] = (),
    public_page: bool = False,
    public_target: Sequence[str] = (),
    private_target: Sequence[str] = (),
    proxy_user_header: str | None = None,
    proxy_secret_file: Path | None = None,
    proxy_address: Sequence[str] = (),
    keep_samples: str = "",
    keep_hours: str = "",
    keep_days: str = "",
    keep_incidents: str = "",
    question_timeout: str = durations.write(DEFAULT_QUESTION_TIMEOUT_US),
    alert_url: str | None = None,
    alert_secret_file: Path | None = None,
    alert_receivers: Path | None = None,
    disk_low: float = DEFAULT_DISK_LOW_PERCENT,
    region_location: Sequence[str] = (),
) -> Settings:
    """Validate the settings of `serve`. TLS is used unless the collector may `trust_loopback`, and for HTTP if other
    machines can reach one of the addresses, with `tls`, and if there are certificate files. Raises `SettingsError`.
    """
    address = parse_address(listen)
    http = Address(address.host, DEFAULT_HTTP_PORT) if http_listen is None else _http_address(http_listen)
    if (certificate is None) != (key is None):
        given, missing = ("--certificate", "--key") if certificate else ("--key", "--certificate")
        raise SettingsError(
            f"{given} without {missing}", hint="set both, or neither: then a certificate is made in the data folder"
        )
    is_exposed = not address.is_loopback or (http is not None and not http.is_loopback)
    wanted = tls or is_exposed or certificate is not None or client_ca is not None
    if wanted and trust_loopback:
        raise SettingsError("--trust-loopback contradicts TLS, which this collector requires", hint="omit one of them")
    proxy = trusted_proxy.check(proxy_user_header, proxy_secret_file, proxy_address, environment)
    if proxy is not None and trust_loopback:
        raise SettingsError(
            "--proxy-user-header contradicts --trust-loopback, with which every caller is an operator",
            hint="omit one of them",
        )
    folder = (data_dir or local_socket.default_data_dir(environment)).absolute()
    return Settings(
        listen=address,
        unix_socket=_unix_socket(unix_socket, folder),
        unix_socket_required=bool(unix_socket),
        database_url=database_url or None,
        data_dir=folder,
        tls=None if trust_loopback else Tls(certificate=certificate, key=key, client_ca=client_ca),
        https=wanted,
        http=http,
        http_hosts=tuple(host.lower() for host in http_host),
        public_page=public_page,
        public_targets=_public_targets(public_target, private_target, public_page=public_page),
        proxy=proxy,
        retention=_retention(keep_samples, keep_hours, keep_days, keep_incidents),
        question_timeout_us=_question_timeout_us(question_timeout),
        disk_low_percent=disk_low,
        receivers=_receivers(alert_url, alert_secret_file, alert_receivers, environment),
        region_places=_region_places(region_location),
    )


def _unix_socket(path: str | None, folder: Path) -> Address | None:
    """Return the address of the given socket, else of that in the data folder, whose path may be too long."""
    if path == "off":
        return None
    if not path:
        return Address(f"{wire_address.UNIX}{folder / local_socket.FILE_NAME}", 0)
    try:
        return wire_address.parse_local_address(f"{wire_address.UNIX}{path}")
    except ValueError as error:
        raise SettingsError(str(error), hint="--unix-socket /run/isochrone/collector.sock") from error


def _http_address(text: str) -> Address | None:
    if text == "off":
        return None
    try:
        return wire_address.parse_address(text, default_port=DEFAULT_HTTP_PORT)
    except ValueError as error:
        raise SettingsError(str(error), hint=f"--http-listen {DEFAULT_HTTP_LISTEN}, or off") from error


def _public_targets(allowed: Sequence[str], denied: Sequence[str], *, public_page: bool) -> NameFilter:
    for option, patterns in (("--public-target", allowed), ("--private-target", denied)):
        if patterns and not public_page:
            raise SettingsError(f"{option} without --public-page", hint="set both, or neither: then nothing is public")
    return NameFilter(allowed=tuple(allowed), denied=tuple(denied))


def _region_places(texts: Sequence[str]) -> Mapping[str, RegionPlace]:
    try:
        return region_places.parse_places(texts)
    except ValueError as error:
        raise SettingsError(
            f"--region-location: {error}",
            hint="--region-location lab=48.14,11.58: its latitude and longitude in degrees",
        ) from error


def alert_secret(file: Path | None, environment: Mapping[str, str]) -> bytes | None:
    """Return the secret for alerts from the file, else from ISOCHRONE_ALERT_SECRET, else `None`. Raises
    `SettingsError`.
    """
    try:
        text = file.read_text(encoding="utf-8") if file else environment.get("ISOCHRONE_ALERT_SECRET", "")
        return webhook_signature.parse_secret(text) if text else None
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}", hint="see --alert-secret-file") from error
    except ValueError as error:
        # Even the decoder's error may quote the secret.
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise SettingsError(f"the secret for alerts is not valid: {reason}", hint=_SECRET_HINT) from None


def _receivers(
    url: str | None, secret_file: Path | None, file: Path | None, environment: Mapping[str, str]
) -> tuple[Receiver, ...]:
    """Return the receivers of alerts: the webhook, which gets every alert on its own, and those of the file. Raises
    `SettingsError`, whose message does not repeat a URL.
    """
    found = receivers.read(file, environment) if file else ()
    if not url:
        return found
    if any(one.name == WEBHOOK for one in found):
        raise SettingsError(f"a receiver of {file} is named {WEBHOOK!r}, as that of --alert-url is", hint="rename it")
    try:
        receivers.check_url(url, allow_http=True)
    except ValueError:
        raise SettingsError(
            "--alert-url is not an http or https URL", hint="write http://HOST/PATH or https://HOST/PATH"
        ) from None
    secret = alert_secret(secret_file, environment)
    if secret is None:
        raise SettingsError("--alert-url needs a secret that signs the alerts", hint=_SECRET_HINT)
    return (Receiver(name=WEBHOOK, format=Format.STANDARD, url=url, secret=secret, group_us=0), *found)


def _retention(samples: str, hours: str, days: str, incidents: str) -> RetentionPeriods:
    """Return the retention periods, with defaults. Raises `SettingsError` if one is shorter than another one needs."""
    default = RetentionPeriods()
    periods = RetentionPeriods(
        samples_us=_period_us("--keep-samples", samples, default.samples_us),
        hours_us=_period_us("--keep-hours", hours, default.hours_us),
        days_us=_period_us("--keep-days", days, default.days_us),
        incidents_us=_period_us("--keep-incidents", incidents, default.incidents_us),
    )
    late_us = min(periods.samples_us or MAX_LATENESS_US, MAX_LATENESS_US)
    for option, kept_us, least_us, why in (
        ("--keep-samples", periods.samples_us, 2 * DAY_US, "samples are dropped by the day, and today's must stay"),
        ("--keep-hours", periods.hours_us, late_us, "samples may be that late, and days are made from hours"),
        ("--keep-incidents", periods.incidents_us, DAY_US, "a new leader reads those of the last day"),
        ("--keep-days", periods.days_us, periods.hours_us or _LONGEST_US, "a day must not be deleted before its hours"),
    ):
        if kept_us is not None and kept_us < least_us:
            least = "forever" if least_us == _LONGEST_US else f"at least {durations.write(least_us)}"
            raise SettingsError(f"{option} {durations.write(kept_us)} is too short", hint=f"{least}: {why}")
    return periods


def _period_us(option: str, text: str, default_us: int | None) -> int | None:
    if not text:
        return default_us
    if text in FOREVER:
        return None
    try:
        duration_us = durations.parse_us(text)
    except ValueError as error:
        raise SettingsError(f"{option}: {error}", hint=f"{option} 35d, or forever") from error
    return duration_us if duration_us < _LONGEST_US else None


def _question_timeout_us(text: str) -> int:
    try:
        duration_us = durations.parse_us(text)
    except ValueError as error:
        raise SettingsError(f"--question-timeout: {error}") from error
    if not _MIN_QUESTION_TIMEOUT_US <= duration_us <= _MAX_QUESTION_TIMEOUT_US:
        limits = f"{durations.write(_MIN_QUESTION_TIMEOUT_US)} to {durations.write(_MAX_QUESTION_TIMEOUT_US)}"
        raise SettingsError(f"--question-timeout {text} is outside {limits}")
    return duration_us
