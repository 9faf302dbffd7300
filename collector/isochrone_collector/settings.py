"""What `serve` was told, checked once, before anything starts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isochrone_collector.errors import SettingsError
from isochrone_wire import address as wire_address
from isochrone_wire import scraping
from isochrone_wire.address import DEFAULT_PORT, Address

METRICS_PORT = 4690
DEFAULT_LISTEN = f"127.0.0.1:{DEFAULT_PORT}"


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
class Settings:
    """Everything `serve` needs. Without `database_url` an embedded PostgreSQL keeps its files in `data_dir`. Without
    `tls` plain text is spoken, and every process of this machine may do everything.
    """

    listen: Address
    data_dir: Path
    tls: Tls | None = None
    metrics: Address | None = None
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
    metrics_listen: str = "off",
) -> Settings:
    """The settings of `serve`. An address that other machines can reach speaks TLS whether told to or not; files speak
    of TLS too. Raises `SettingsError`.
    """
    address = parse_address(listen)
    if (certificate is None) != (key is None):
        given, missing = ("--certificate", "--key") if certificate else ("--key", "--certificate")
        raise SettingsError(
            f"{given} without {missing}", hint="say both, or neither: then a certificate is made in the data folder"
        )
    wanted = tls or not address.is_loopback or certificate is not None or client_ca is not None
    return Settings(
        listen=address,
        database_url=database_url or None,
        data_dir=(data_dir or _default_data_dir(environment)).absolute(),
        tls=Tls(certificate=certificate, key=key, client_ca=client_ca) if wanted else None,
        metrics=_metrics_address(metrics_listen),
    )


def _metrics_address(text: str) -> Address | None:
    try:
        return scraping.parse_listen(text, default_port=METRICS_PORT)
    except ValueError as error:
        raise SettingsError(str(error), hint=f"--metrics-listen 127.0.0.1:{METRICS_PORT}, or off") from error


def data_dir_of(environment: Mapping[str, str]) -> Path:
    """The data folder of whoever has this environment, unless a flag says otherwise."""
    told = environment.get("ISOCHRONE_DATA_DIR")
    return Path(told) if told else _default_data_dir(environment)


def _default_data_dir(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111  # Path.home() raises
    return Path(base) / "isochrone" / "collector"
