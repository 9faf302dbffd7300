"""What `isochrone-agent run` needs to know. Flags come first, then `ISOCHRONE_*` variables, then the settings file."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from isochrone_agent.errors import SettingsError
from isochrone_agent.transport import ANYWHERE, Dialling
from isochrone_wire.address import DEFAULT_PORT, Address, parse_address
from isochrone_wire.model import Vantage


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything `run` is told. `concurrency` bounds the probes in flight, because contention falsifies latency."""

    vantage: Vantage
    collector: Address
    data_dir: Path
    credentials: Path | None = None
    dialling: Dialling = ANYWHERE
    concurrency: int = 8
    ca_file: Path | None = None


def gather_settings(path: Path | None, options: Mapping[str, Any]) -> Settings:
    """One set of settings out of flags and variables (`options`) and a settings file. Raises `SettingsError`."""
    filed = read_settings_file(path, options) if path else {}
    told = filed | {name: value for name, value in options.items() if value not in (None, (), "any")}
    missing = [name for name in ("vantage", "region") if not told.get(name)]
    if missing:
        flags = " and ".join(f"--{name}" for name in missing)
        raise SettingsError(
            f"{flags} must be said", hint="isochrone-agent run --vantage sg-1 --region ap-southeast-1 …"
        )
    family = str(told.get("family", "any"))
    return Settings(
        vantage=Vantage(name=str(told["vantage"]), region=str(told["region"])),
        collector=checked_collector(str(told.get("collector", f"127.0.0.1:{DEFAULT_PORT}"))),
        data_dir=Path(told.get("data_dir") or _default_data_dir(str(told["vantage"]))),
        credentials=Path(told["credentials"]) if told.get("credentials") else None,
        dialling=Dialling(
            family=0 if family == "any" else int(family), connect_to=parse_connect_to(told.get("connect_to", ()))
        ),
        concurrency=int(told.get("concurrency", 8)),
        ca_file=Path(told["ca_file"]) if told.get("ca_file") else None,
    )


def read_settings_file(path: Path, known: Iterable[str]) -> dict[str, Any]:
    """The keys of a TOML settings file. Raises `SettingsError` that names every unknown key with the nearest known."""
    known = sorted(known)
    try:
        text = path.read_text()
        found = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror}", hint="see isochrone-agent run --help"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}", hint="see isochrone-agent run --help") from error
    problems = [_unknown(key, text, known) for key in found if key not in known]
    if problems:
        raise SettingsError(f"{path}: {'; '.join(problems)}", hint=f"known keys: {', '.join(known)}")
    return found


def parse_connect_to(texts: Iterable[str]) -> Mapping[tuple[str, int], tuple[str, int]]:
    """`HOST:PORT:ADDRESS:PORT`, as curl has it, IPv6 in brackets. Raises `SettingsError`."""
    return dict(_connect_to(text) for text in texts)


def checked_collector(text: str) -> Address:
    """The collector's address; only this machine may be spoken to in plain text. Raises `SettingsError`."""
    try:
        address = parse_address(text)
    except ValueError as error:
        raise SettingsError(str(error), hint="isochrone-agent run --collector 127.0.0.1:4600 …") from error
    if not address.is_loopback:
        hint = "reach a collector on another machine through a tunnel (ssh -L 4600:127.0.0.1:4600 …) for now"
        raise SettingsError(f"{address} is another machine, and plain text is only spoken on loopback", hint=hint)
    return address


def _default_data_dir(vantage: str) -> Path:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "isochrone" / "agent" / vantage


def _unknown(key: str, text: str, known: list[str]) -> str:
    line = next((n for n, row in enumerate(text.splitlines(), 1) if row.lstrip().startswith(key)), 0)
    close = get_close_matches(key, known, n=1)
    return f"line {line}: unknown key {key!r}" + (f", did you mean {close[0]!r}?" if close else "")


def _connect_to(text: str) -> tuple[tuple[str, int], tuple[str, int]]:
    pieces = _pieces(text)
    well_formed = len(pieces) == 4 and pieces[1].isdecimal() and pieces[3].isdecimal()  # noqa: PLR2004  # see the message
    if not well_formed:
        hint = "for example --connect-to api.example.com:443:127.0.0.1:8443"
        raise SettingsError(f"{text!r} is not HOST:PORT:ADDRESS:PORT", hint=hint)
    return (pieces[0], int(pieces[1])), (pieces[2], int(pieces[3]))


def _pieces(text: str) -> list[str]:
    pieces, inside, current = [], False, ""
    for character in text:
        if character in "[]":
            inside = character == "["
        elif character == ":" and not inside:
            pieces.append(current)
            current = ""
        else:
            current += character
    return [*pieces, current]
