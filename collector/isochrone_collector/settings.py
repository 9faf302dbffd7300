"""What `serve` was told, checked once, before anything starts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isochrone_collector.errors import SettingsError
from isochrone_wire import address as wire_address
from isochrone_wire.address import DEFAULT_PORT, Address

DEFAULT_LISTEN = f"127.0.0.1:{DEFAULT_PORT}"


def parse_address(text: str) -> Address:
    """`host:port` or `[ipv6]:port`; without a port the usual one. Raises `SettingsError`."""
    try:
        return wire_address.parse_address(text)
    except ValueError as error:
        raise SettingsError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything `serve` needs. Without `database_url` an embedded PostgreSQL keeps its files in `data_dir`."""

    listen: Address
    data_dir: Path
    # May hold a password, so it is in no repr and no log; see store.pool.describe.
    database_url: str | None = field(default=None, repr=False)


def check(*, listen: str, database_url: str | None, data_dir: Path | None, environment: Mapping[str, str]) -> Settings:
    """The settings of `serve`. Raises `SettingsError`, also for an address that would put samples on a network."""
    address = parse_address(listen)
    if not address.is_loopback:
        raise SettingsError(
            f"{address} can be reached from other machines, and this collector does not speak TLS yet",
            hint="listen on 127.0.0.1 and reach it through a tunnel or a proxy that ends TLS",
        )
    return Settings(
        listen=address,
        database_url=database_url or None,
        data_dir=(data_dir or _default_data_dir(environment)).absolute(),
    )


def _default_data_dir(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111  # Path.home() raises
    return Path(base) / "isochrone" / "collector"
