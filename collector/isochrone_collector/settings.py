"""What `serve` was told, checked once, before anything starts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from isochrone_collector import durations, webhook_signature
from isochrone_collector.errors import SettingsError
from isochrone_wire import address as wire_address
from isochrone_wire import metrics_endpoint
from isochrone_wire.address import DEFAULT_PORT, Address
from isochrone_wire.model import DAY_US, SECOND_US

METRICS_PORT = 4690
HTTP_PORT = 4680
DEFAULT_LISTEN = f"127.0.0.1:{DEFAULT_PORT}"
DEFAULT_HTTP_LISTEN = f"127.0.0.1:{HTTP_PORT}"
_SECRET_HINT = "make one: isochrone-collector alerts secret > FILE, and say --alert-secret-file FILE"
FOREVER = ("forever", "0")
MAX_LATENESS_US = 33 * DAY_US
"""How old a sample can be, in microseconds, that still has its hour summarised anew."""
# Longer than there has been anything to keep; an instant so long ago may not be one for PostgreSQL.
_LONGEST_US = 36_500 * DAY_US
# A little less than readers wait for an answer unless they say otherwise, so that they learn why there is none.
DEFAULT_QUESTION_TIMEOUT_US = 25 * SECOND_US
# Longer ones would outlive whoever asked.
_MAX_QUESTION_TIMEOUT_US = 3600 * SECOND_US
_MIN_QUESTION_TIMEOUT_US = SECOND_US // 1000


def parse_address(text: str) -> Address:
    """`host:port` or `[ipv6]:port`; without a port the usual one. Raises `SettingsError`."""
    try:
        return wire_address.parse_address(text)
    except ValueError as error:
        raise SettingsError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS, and with it credentials. Without files of the operator's a certificate is made in the data folder;
    `client_ca` names the authorities (PEM) of which every client must show a certificate.
    """

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPeriods:
    """How long things are kept, in microseconds; `None` is for good. Summaries of hours outlast the time in which
    samples may come late, because days are made from them.
    """

    samples_us: int | None = 35 * DAY_US
    hours_us: int | None = 100 * DAY_US
    days_us: int | None = 1095 * DAY_US


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Where alerts go, and the secret they are signed with. The address may hold a token, so neither is shown."""

    url: str = field(repr=False)
    secret: bytes = field(repr=False)

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything `serve` needs. Without `database_url` an embedded PostgreSQL keeps its files in `data_dir`. Without
    `tls` plain text is spoken, and every process of this machine may do everything.
    """

    listen: Address
    data_dir: Path
    tls: Tls | None = None
    http: Address | None = None
    metrics: Address | None = None
    retention: RetentionPeriods = RetentionPeriods()
    webhook: WebhookSettings | None = None
    # How long the database may take for one question of a reader.
    question_timeout_us: int = DEFAULT_QUESTION_TIMEOUT_US
    # May hold a password, so it is in no repr and no log; see store.pool.describe.
    database_url: str | None = field(default=None, repr=False)


def check(
    *,
    listen: str,
    database_url: str | None,
    data_dir: Path | None,
    environment: Mapping[str, str],
    tls: bool = False,
    certificate: Path | None = None,
    key: Path | None = None,
    client_ca: Path | None = None,
    http_listen: str = "off",
    metrics_listen: str = "off",
    keep_samples: str = "",
    keep_hours: str = "",
    keep_days: str = "",
    question_timeout: str = durations.write(DEFAULT_QUESTION_TIMEOUT_US),
    alert_url: str | None = None,
    alert_secret_file: Path | None = None,
) -> Settings:
    """The settings of `serve`. Where other machines can reach an address, both speak TLS whether told to or not; files
    speak of TLS too. Raises `SettingsError`.
    """
    address, http = parse_address(listen), _http_address(http_listen)
    if (certificate is None) != (key is None):
        given, missing = ("--certificate", "--key") if certificate else ("--key", "--certificate")
        raise SettingsError(
            f"{given} without {missing}", hint="say both, or neither: then a certificate is made in the data folder"
        )
    is_exposed = not address.is_loopback or (http is not None and not http.is_loopback)
    wanted = tls or is_exposed or certificate is not None or client_ca is not None
    return Settings(
        listen=address,
        database_url=database_url or None,
        data_dir=(data_dir or _default_data_dir(environment)).absolute(),
        tls=Tls(certificate=certificate, key=key, client_ca=client_ca) if wanted else None,
        http=http,
        metrics=_metrics_address(metrics_listen),
        retention=_retention(keep_samples, keep_hours, keep_days),
        question_timeout_us=_question_timeout_us(question_timeout),
        webhook=_webhook(alert_url, alert_secret_file, environment),
    )


def _http_address(text: str) -> Address | None:
    if text == "off":
        return None
    try:
        return wire_address.parse_address(text, default_port=HTTP_PORT)
    except ValueError as error:
        raise SettingsError(str(error), hint=f"--http-listen {DEFAULT_HTTP_LISTEN}, or off") from error


def _metrics_address(text: str) -> Address | None:
    try:
        return metrics_endpoint.parse_listen(text, default_port=METRICS_PORT)
    except ValueError as error:
        raise SettingsError(str(error), hint=f"--metrics-listen 127.0.0.1:{METRICS_PORT}, or off") from error


def alert_secret(file: Path | None, environment: Mapping[str, str]) -> bytes | None:
    """The secret of alerts: of the file, else of ISOCHRONE_ALERT_SECRET, else `None`. Raises `SettingsError`."""
    try:
        text = file.read_text(encoding="utf-8") if file else environment.get("ISOCHRONE_ALERT_SECRET", "")
        return webhook_signature.parse_secret(text) if text else None
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}", hint="see --alert-secret-file") from error
    except ValueError as error:
        # Not even the decoder's complaint may show what was read.
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise SettingsError(f"the secret of alerts cannot be used: {reason}", hint=_SECRET_HINT) from None


def _webhook(url: str | None, secret_file: Path | None, environment: Mapping[str, str]) -> WebhookSettings | None:
    """Where alerts go. Raises `SettingsError`, whose message does not repeat the address."""
    if not url:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError("--alert-url cannot be used", hint="write http://HOST/PATH or https://HOST/PATH")
    secret = alert_secret(secret_file, environment)
    if secret is None:
        raise SettingsError("--alert-url without a secret to sign alerts with", hint=_SECRET_HINT)
    return WebhookSettings(url=url, secret=secret)


def _retention(samples: str, hours: str, days: str) -> RetentionPeriods:
    """What was told, the usual where nothing was. Raises `SettingsError` when one would go before what needs it."""
    usual = RetentionPeriods()
    periods = RetentionPeriods(
        samples_us=_period_us("--keep-samples", samples, usual.samples_us),
        hours_us=_period_us("--keep-hours", hours, usual.hours_us),
        days_us=_period_us("--keep-days", days, usual.days_us),
    )
    late_us = min(periods.samples_us or MAX_LATENESS_US, MAX_LATENESS_US)
    for option, kept_us, least_us, why in (
        ("--keep-samples", periods.samples_us, 2 * DAY_US, "they go a day at a time, and today's must stay"),
        ("--keep-hours", periods.hours_us, late_us, "samples may come so late, and days are made from hours"),
        ("--keep-days", periods.days_us, periods.hours_us or _LONGEST_US, "a day should not go before its hours"),
    ):
        if kept_us is not None and kept_us < least_us:
            least = "forever" if least_us == _LONGEST_US else f"at least {durations.write(least_us)}"
            raise SettingsError(f"{option} {durations.write(kept_us)} is too short", hint=f"{least}: {why}")
    return periods


def _period_us(option: str, text: str, usual_us: int | None) -> int | None:
    if not text:
        return usual_us
    if text in FOREVER:
        return None
    try:
        told_us = durations.parse_us(text)
    except ValueError as error:
        raise SettingsError(f"{option}: {error}", hint=f"{option} 35d, or forever") from error
    return told_us if told_us < _LONGEST_US else None


def _question_timeout_us(text: str) -> int:
    try:
        told_us = durations.parse_us(text)
    except ValueError as error:
        raise SettingsError(f"--question-timeout: {error}") from error
    if not _MIN_QUESTION_TIMEOUT_US <= told_us <= _MAX_QUESTION_TIMEOUT_US:
        limits = f"{durations.write(_MIN_QUESTION_TIMEOUT_US)} to {durations.write(_MAX_QUESTION_TIMEOUT_US)}"
        raise SettingsError(f"--question-timeout {text} is outside {limits}")
    return told_us


def data_dir_of(environment: Mapping[str, str]) -> Path:
    """The data folder of whoever has this environment, unless a flag says otherwise."""
    told = environment.get("ISOCHRONE_DATA_DIR")
    return Path(told) if told else _default_data_dir(environment)


def _default_data_dir(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111  # Path.home() raises
    return Path(base) / "isochrone" / "collector"
