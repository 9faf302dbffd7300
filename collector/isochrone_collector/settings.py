"""Settings of `serve`, validated once, before anything starts."""

# ruff: noqa: RUF009  # `_option` returns a field

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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

Text = TypeVar("Text")
Value = TypeVar("Value")
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


def _parsed(parse: Callable[[Text], Value], text: Text, *, hint: str = "", option: str = "") -> Value:
    """Return the parsed text of an option. Raises `SettingsError`, which names the option if it is given."""
    try:
        return parse(text)
    except ValueError as error:
        raise SettingsError(f"{option}: {error}" if option else str(error), hint=hint) from error


def parse_address(text: str) -> Address:
    """Parse `host:port` or `[ipv6]:port`; the port has a default. Raises `SettingsError`."""
    return _parsed(wire_address.parse_address, text)


def parse_collector(text: str) -> Address:
    """Parse the address of a collector, also `unix:PATH`. Raises `SettingsError`."""
    return _parsed(wire_address.parse_local_address, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS, which also requires credentials. Without files a certificate is made; `client_ca` (PEM) is for mTLS."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPeriods:
    """Retention periods in microseconds; `None` is unlimited. `incidents_us` is also that of alerts and silences."""

    samples_us: int | None = 35 * DAY_US
    hours_us: int | None = 100 * DAY_US
    days_us: int | None = 1095 * DAY_US
    incidents_us: int | None = 400 * DAY_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of `serve`. Without `database_url` PostgreSQL is embedded; without `tls` every caller is trusted."""

    listen: Address
    data_dir: Path
    tls: Tls | None = None
    https: bool = False
    # If it is not required, a socket that cannot be made is only logged.
    unix_socket: Address | None = None
    unix_socket_required: bool = False
    http: Address | None = None
    # Further names of this machine in requests over HTTP without TLS.
    http_hosts: tuple[str, ...] = ()
    # `True` if the status of targets needs no credential.
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


def _option(text: str, default: Any = None, *, metavar: str | None = None) -> Any:  # noqa: ANN401  # of any type
    """Return a field of `Options` with the help of the option, and the word for its value."""
    return field(default=default, metadata={"help": text, "metavar": metavar})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Options:
    """The options of `serve` as written. `cli.serve` makes flag, variable and type of each from the field."""

    listen: str = _option("Address; port 0 takes a free one.", DEFAULT_LISTEN)
    unix_socket: str | None = _option(
        "Unix socket on which this user's commands and agents need no credential; `off` for none.  "
        "[default: collector.sock in the data folder]",
        metavar="PATH",
    )
    database_url: str | None = _option("PostgreSQL to use instead of the embedded one.")
    data_dir: Path | None = _option(
        "Data folder of the embedded PostgreSQL.  [default: $XDG_DATA_HOME/isochrone/collector]"
    )
    tls: bool = _option("TLS for HTTP on loopback too.", False)
    trust_loopback: bool = _option(
        "No TLS and no credentials on loopback: every process of this machine is an operator.", False
    )
    certificate: Path | None = _option("Certificate with its chain, PEM.")
    key: Path | None = _option("Its key, PEM, without a passphrase.")
    client_ca: Path | None = _option("Require a client certificate of these authorities, PEM (mTLS).")
    http_listen: str | None = _option(
        "Address for HTTP: readers, the page, route tables, /metrics; port 0 takes a free one, `off` disables it.  "
        f"[default: the host of --listen, port {DEFAULT_HTTP_PORT}]"
    )
    http_host: tuple[str, ...] = _option(
        "Further name in the Host header that HTTP without TLS accepts; by default localhost and the address.",
        (),
        metavar="NAME",
    )
    public_page: bool = _option(
        "Status of all targets (/status, /v1/status) and badges without a login, for the public.", False
    )
    public_target: tuple[str, ...] = _option(
        "Target, or shell-style pattern of targets, that the public page has; by default all.", (), metavar="PATTERN"
    )
    private_target: tuple[str, ...] = _option(
        "Target, or pattern, that the public page does not have, also if --public-target matches it.",
        (),
        metavar="PATTERN",
    )
    proxy_user_header: str | None = _option(
        "Header in which a reverse proxy names the user it has authenticated, such as X-Forwarded-User; the user may "
        "read. Requires --proxy-secret-file or --proxy-address.",
        metavar="NAME",
    )
    proxy_secret_file: Path | None = _option(
        "Secret that the proxy sends as X-Isochrone-Proxy-Secret; or set ISOCHRONE_PROXY_SECRET."
    )
    proxy_address: tuple[str, ...] = _option(
        "Address or network of the proxy; requests from others have no user.", (), metavar="ADDRESS"
    )
    keep_samples: str = _option("How long samples are kept, in whole days; `forever` or 0 keeps all.", "35d")
    keep_hours: str = _option("How long hourly summaries are kept.", "100d")
    keep_days: str = _option("How long daily summaries are kept.", "1095d")
    keep_incidents: str = _option(
        "How long incidents that are over, delivered alerts and past silences are kept.", "400d"
    )
    question_timeout: str = _option(
        "Time limit of the database for one query of a reader.", durations.write(DEFAULT_QUESTION_TIMEOUT_US)
    )
    disk_low: float = _option(
        "Free share of the embedded PostgreSQL's disk, at most 16 GiB, below which there is an alert. Below half of it "
        "backlogs are refused, below a quarter all pushes. 0 for no limits.",
        DEFAULT_DISK_LOW_PERCENT,
        metavar="PERCENT",
    )
    region_location: tuple[str, ...] = _option(
        "Place of a region in degrees, for the map; those of well-known cloud regions are known.",
        (),
        metavar="NAME=LAT,LON",
    )
    alert_url: str | None = _option("Webhook that receives alerts, http or https.")
    alert_secret_file: Path | None = _option(
        "Secret that signs alerts, from `alerts secret`; or set ISOCHRONE_ALERT_SECRET."
    )
    alert_receivers: Path | None = _option(
        "YAML file with further receivers of alerts: Slack, PagerDuty, Opsgenie, webhooks."
    )


def check(environment: Mapping[str, str], given: Options) -> Settings:
    """Validate the settings of `serve`: TLS is used unless loopback may be trusted. Raises `SettingsError`."""
    address = parse_address(given.listen)
    http = Address(address.host, DEFAULT_HTTP_PORT) if given.http_listen is None else _http_address(given.http_listen)
    if (given.certificate is None) != (given.key is None):
        set_one, missing = ("--certificate", "--key") if given.certificate else ("--key", "--certificate")
        raise SettingsError(
            f"{set_one} without {missing}", hint="set both, or neither: then a certificate is made in the data folder"
        )
    is_exposed = not address.is_loopback or (http is not None and not http.is_loopback)
    wanted = given.tls or is_exposed or given.certificate is not None or given.client_ca is not None
    if wanted and given.trust_loopback:
        raise SettingsError("--trust-loopback contradicts TLS, which this collector requires", hint="omit one of them")
    proxy = trusted_proxy.check(given.proxy_user_header, given.proxy_secret_file, given.proxy_address, environment)
    if proxy is not None and given.trust_loopback:
        raise SettingsError(
            "--proxy-user-header contradicts --trust-loopback, with which every caller is an operator",
            hint="omit one of them",
        )
    for option, patterns in (("--public-target", given.public_target), ("--private-target", given.private_target)):
        if patterns and not given.public_page:
            raise SettingsError(f"{option} without --public-page", hint="set both, or neither: then nothing is public")
    hint = "--region-location lab=48.14,11.58: its latitude and longitude in degrees"
    folder = (given.data_dir or local_socket.default_data_dir(environment)).absolute()
    tls = Tls(certificate=given.certificate, key=given.key, client_ca=given.client_ca)
    return Settings(
        listen=address,
        unix_socket=_unix_socket(given.unix_socket, folder),
        unix_socket_required=bool(given.unix_socket),
        database_url=given.database_url or None,
        data_dir=folder,
        tls=None if given.trust_loopback else tls,
        https=wanted,
        http=http,
        http_hosts=tuple(host.lower() for host in given.http_host),
        public_page=given.public_page,
        public_targets=NameFilter(allowed=tuple(given.public_target), denied=tuple(given.private_target)),
        proxy=proxy,
        retention=_retention(given),
        question_timeout_us=_question_timeout_us(given.question_timeout),
        disk_low_percent=given.disk_low,
        receivers=_receivers(given, environment),
        region_places=_parsed(region_places.parse_places, given.region_location, option="--region-location", hint=hint),
    )


def _unix_socket(path: str | None, folder: Path) -> Address | None:
    """Return the address of the given socket, else of that in the data folder, whose path may be too long."""
    if path == "off":
        return None
    if not path:
        return Address(f"{wire_address.UNIX}{folder / local_socket.FILE_NAME}", 0)
    text = f"{wire_address.UNIX}{path}"
    return _parsed(wire_address.parse_local_address, text, hint="--unix-socket /run/isochrone/collector.sock")


def _http_address(text: str) -> Address | None:
    if text == "off":
        return None
    parse = partial(wire_address.parse_address, default_port=DEFAULT_HTTP_PORT)
    return _parsed(parse, text, hint=f"--http-listen {DEFAULT_HTTP_LISTEN}, or off")


def alert_secret(file: Path | None, environment: Mapping[str, str]) -> bytes | None:
    """Return the secret of the file, else of ISOCHRONE_ALERT_SECRET, else `None`. Raises `SettingsError`."""
    try:
        text = file.read_text(encoding="utf-8") if file else environment.get("ISOCHRONE_ALERT_SECRET", "")
        return webhook_signature.parse_secret(text) if text else None
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}", hint="see --alert-secret-file") from error
    except ValueError as error:
        # Even the decoder's error may quote the secret.
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise SettingsError(f"the secret for alerts is not valid: {reason}", hint=_SECRET_HINT) from None


def _receivers(given: Options, environment: Mapping[str, str]) -> tuple[Receiver, ...]:
    """Return the webhook and the receivers of the file. Raises `SettingsError`, which does not repeat a URL."""
    url, file = given.alert_url, given.alert_receivers
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
    secret = alert_secret(given.alert_secret_file, environment)
    if secret is None:
        raise SettingsError("--alert-url needs a secret that signs the alerts", hint=_SECRET_HINT)
    return (Receiver(name=WEBHOOK, format=Format.STANDARD, url=url, secret=secret, group_us=0), *found)


def _retention(given: Options) -> RetentionPeriods:
    periods = RetentionPeriods(
        samples_us=_period_us("--keep-samples", given.keep_samples),
        hours_us=_period_us("--keep-hours", given.keep_hours),
        days_us=_period_us("--keep-days", given.keep_days),
        incidents_us=_period_us("--keep-incidents", given.keep_incidents),
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


def _period_us(option: str, text: str) -> int | None:
    if text in FOREVER:
        return None
    duration_us = _parsed(durations.parse_us, text, option=option, hint=f"{option} 35d, or forever")
    return duration_us if duration_us < _LONGEST_US else None


def _question_timeout_us(text: str) -> int:
    duration_us = _parsed(durations.parse_us, text, option="--question-timeout")
    if not _MIN_QUESTION_TIMEOUT_US <= duration_us <= _MAX_QUESTION_TIMEOUT_US:
        limits = f"{durations.write(_MIN_QUESTION_TIMEOUT_US)} to {durations.write(_MAX_QUESTION_TIMEOUT_US)}"
        raise SettingsError(f"--question-timeout {text} is outside {limits}")
    return duration_us
