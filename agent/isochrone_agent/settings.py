"""Settings of `isochrone-agent run`, in order of precedence: flags, `ISOCHRONE_*` variables, the settings file."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

from isochrone_agent.errors import AgentError, SettingsError
from isochrone_common import identity_file, metrics_server
from isochrone_common.address import Address, parse_local_address
from isochrone_common.files import expand_home
from isochrone_common.identity_file import Identity
from isochrone_common.local_socket import default_socket
from isochrone_wire.model import Vantage
from isochrone_wire.operations import Role
from isochrone_wire.text import is_http_url

METRICS_PORT = 4691
SPOOL_BYTES = 100_000_000
REPLAY_BYTES = 20_000_000
_LOCAL = "local"

_CONNECT_TO = re.compile(r"(\[[^\]]*\]|[^:\[\]]*):(\d+):(\[[^\]]*\]|[^:\[\]]*):(\d+)")
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class DialOptions:
    """`family` is 4, 6 or 0 for either; `connect_to` redirects connections, like curl's option of that name."""

    family: int = 0
    connect_to: Mapping[tuple[str, int], tuple[str, int]] = field(default_factory=dict)


class Drain(StrEnum):
    """The order of delivery after an outage: newest first, with the backlog in every other batch, or oldest first."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of `run`. Without `identity`, the collector is on this machine; with `plan` there is none."""

    vantage: Vantage
    collector: Address
    data_dir: Path
    credentials: Path | None = None
    policy: Path | None = None
    dial_options: DialOptions = field(default_factory=DialOptions)
    concurrency: int = 8
    ca_file: Path | None = None
    metrics: Address | None = None
    identity: Identity | None = None
    spool_limit_bytes: int = SPOOL_BYTES
    keep_delivered_bytes: int = REPLAY_BYTES
    drain: Drain = Drain.NEWEST
    plan: Path | None = None
    # The base URL of a receiver of OTLP over HTTP; it may contain a password.
    otlp_endpoint: str | None = field(default=None, repr=False)

    @property
    def spool_path(self) -> Path:
        """The path of the spool."""
        return self.data_dir / "spool.sqlite3"

    @property
    def identity_path(self) -> Path:
        """The path of the identity file, which exists only after joining."""
        return self.data_dir / identity_file.FILE_NAME


def load_settings(path: Path | None, options: Mapping[str, Any]) -> Settings:
    """Merge flags and variables (`options`) with a settings file. Raises `SettingsError`."""
    from_file = read_settings_file(path, options) if path else {}
    values = from_file | {name: value for name, value in options.items() if value not in (None, (), "any")}
    data_dir = Path(values.get("data_dir") or default_data_dir(values.get("vantage")))
    identity = read_identity(data_dir / identity_file.FILE_NAME)
    if values.get("plan"):
        values = _standalone(values, identity, data_dir)
    parsed = {
        field: parse(str(values[option]))
        for option, (field, parse) in _PARSERS.items()
        if values.get(option) is not None
    }
    return Settings(
        vantage=_vantage(values, identity, data_dir),
        collector=checked_collector_address(values.get("collector"), identity),
        data_dir=data_dir,
        identity=identity,
        dial_options=dial_options(values.get("connect_to", ()), str(values.get("family", "any"))),
        **parsed,
    )


def read_settings_file(path: Path, known: Iterable[str]) -> dict[str, Any]:
    """Read a TOML settings file. Raises `SettingsError`, which names each unknown key and the closest known one."""
    known, problems = sorted(known), []
    text, found = read_toml(path, SettingsError)
    for key in (key for key in found if key not in known):
        line = next((n for n, row in enumerate(text.splitlines(), 1) if row.lstrip().startswith(key)), 0)
        problems.append(f"line {line}: unknown key {key!r}{suggestion(key, known)}")
    if problems:
        raise SettingsError(f"{path}: {'; '.join(problems)}", hint=f"known keys: {', '.join(known)}")
    return found


def read_toml(path: Path, failure: type[AgentError]) -> tuple[str, dict[str, Any]]:
    """Read a TOML file; return its text and its content. Raises `failure`."""
    hint = "see isochrone-agent run --help"
    try:
        text = path.read_text()
        return text, tomllib.loads(text)
    except OSError as error:
        raise failure(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    except tomllib.TOMLDecodeError as error:
        raise failure(f"{path} is not valid TOML: {error}", hint=hint) from error


def dial_options(connect_to: Iterable[str], family: str) -> DialOptions:
    """Parse each `HOST:PORT:ADDRESS:PORT` as curl does, with IPv6 addresses in brackets. Raises `SettingsError`."""
    places = {}
    for text in connect_to:
        if (found := _CONNECT_TO.fullmatch(text)) is None:
            hint = "for example --connect-to api.example.com:443:127.0.0.1:8443"
            raise SettingsError(f"{text!r} is not HOST:PORT:ADDRESS:PORT", hint=hint)
        host, port, address, to_port = found.groups()
        places[host.strip("[]"), int(port)] = address.strip("[]"), int(to_port)
    return DialOptions(family=0 if family == "any" else int(family), connect_to=places)


def parse_size(text: str) -> int:
    """Parse `100MB`, `2GB` or a number of bytes; return bytes, at least 1 MB. Raises `SettingsError`."""
    found = re.fullmatch(r"(\d+)\s*([kKMG]?)B?", text.strip())
    size = int(found[1]) * _SIZES[found[2].upper()] if found else 0
    if size < _SIZES["M"]:
        raise SettingsError(f"{text!r} is not a size of at least 1 MB", hint="for example --spool-limit 100MB")
    return size


def checked_collector_address(text: str | None, identity: Identity | None) -> Address:
    """Return the collector's address. Raises `SettingsError` for another machine without an identity."""
    try:
        written = parse_local_address(text) if text else None
    except ValueError as error:
        raise SettingsError(str(error), hint="isochrone-agent run --collector 127.0.0.1:4600 …") from error
    # Without an identity nothing proves that a port on loopback is the collector's.
    address = written or (identity.address if identity else default_socket(os.environ))
    if identity is None and not address.is_loopback:
        hint = f"join first: isochrone-agent join {address} --token …, with a token of isochrone-collector vantage add"
        raise SettingsError(f"{address} is another machine, and plain text is only spoken on loopback", hint=hint)
    return address


def read_identity(path: Path) -> Identity | None:
    """Read the identity of an agent; `None` if it has not joined. Raises `SettingsError`."""
    try:
        identity = identity_file.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        hint = "run the agent as the user that joined"
        raise SettingsError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    except ValueError as error:
        raise SettingsError(str(error), hint="join again: isochrone-agent join") from error
    if identity.role is not Role.VANTAGE or identity.region is None:
        hint = "join with a token of isochrone-collector vantage add"
        raise SettingsError(f"{path} is a {identity.role.value}'s, not a vantage's", hint=hint)
    return identity


def default_data_dir(vantage: str | None) -> Path:
    """The data folder if none is given: named after the vantage, or `default` for an agent without a given name."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return expand_home(base) / "isochrone" / "agent" / (vantage or "default")


def _vantage(values: Mapping[str, Any], identity: Identity | None, data_dir: Path) -> Vantage:
    known = {"vantage": identity.name, "region": identity.region} if identity else {}
    both = {name: str(values.get(name) or known.get(name) or "") for name in ("vantage", "region")}
    missing = " and ".join(f"--{name}" for name, value in both.items() if not value)
    if missing:
        hint = "isochrone-agent run --vantage sg-1 --region ap-southeast-1 …, or isochrone-agent join first"
        raise SettingsError(f"{missing} must be given", hint=hint)
    differing = " and ".join(f"--{name} {both[name]}" for name, value in known.items() if value != both[name])
    if differing:
        hint = "omit it, or use another --data-dir"
        raise SettingsError(
            f"{data_dir} belongs to vantage {known['vantage']} in {known['region']}, not {differing}", hint=hint
        )
    return Vantage(name=both["vantage"], region=both["region"])


def _standalone(values: Mapping[str, Any], identity: Identity | None, data_dir: Path) -> dict[str, Any]:
    """Return the values without a collector, with default vantage and region. Raises `SettingsError`."""
    if values.get("collector"):
        raise SettingsError("--plan runs without a collector", hint="omit --collector, or --plan")
    if identity:
        raise SettingsError(
            f"{data_dir} belongs to an agent that has joined a collector", hint="use another --data-dir, or omit --plan"
        )
    return {"vantage": _LOCAL, "region": _LOCAL, **values}


def suggestion(key: str, known: Iterable[str]) -> str:
    """Return ` (did you mean …?)` with the known key that is closest to an unknown one; empty if none is close."""
    close = get_close_matches(key, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _metrics_address(text: str) -> Address | None:
    try:
        return metrics_server.parse_listen(text, default_port=METRICS_PORT)
    except ValueError as error:
        raise SettingsError(str(error), hint=f"--metrics-listen 127.0.0.1:{METRICS_PORT}, or off") from error


def _otlp_endpoint(text: str) -> str | None:
    """Check the URL, which an error does not repeat because it may contain a password."""
    if text in ("", "off"):
        return None
    if not is_http_url(text):
        raise SettingsError("--otlp-endpoint is not an http or https URL", hint="--otlp-endpoint http://127.0.0.1:4318")
    return text


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _drain(text: str) -> Drain:
    if text not in set(Drain):
        raise SettingsError(f"drain {text!r} is not valid", hint="use newest or oldest")
    return Drain(text)


# The options that need no other one: the field, and the function that reads the text. `SettingsError` is raised.
_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    **{name: (name, _path) for name in ("credentials", "policy", "ca_file", "plan")},
    "concurrency": ("concurrency", lambda text: int(float(text))),  # TOML may write 8.0
    "metrics_listen": ("metrics", _metrics_address),
    "spool_limit": ("spool_limit_bytes", parse_size),
    "keep_delivered": ("keep_delivered_bytes", lambda text: 0 if text.strip() == "0" else parse_size(text)),
    "drain": ("drain", _drain),
    "otlp_endpoint": ("otlp_endpoint", _otlp_endpoint),
}
