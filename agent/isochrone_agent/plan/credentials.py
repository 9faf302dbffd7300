"""Provider keys, and the origins each of them may be sent to.

A plan refers to a key by name. The agent's own file (`--credentials`) defines, for each name, where the key is stored
and which hosts may receive it:

    [deepseek]
    env = "DEEPSEEK_API_KEY"          # or: file = "/run/secrets/deepseek"
    hosts = ["api.deepseek.com"]

| Entry of `hosts` | Origin |
|---|---|
| `api.openai.com` | `https://api.openai.com`, port 443 |
| `host:8443` | `https://host:8443` |
| `http://host`, `http://host:8000` | plain text, on exactly that port (80 if none is given) |
| `127.0.0.1`, `[::1]`, `localhost` | this machine: any scheme, and any port unless one is given |

A name without a table that is the name of a catalogue provider means that provider's environment variable, if it is
set, and that provider's own origin. A plan therefore cannot make an agent send a key to any other origin.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from isochrone_agent.errors import CredentialError
from isochrone_agent.probe.destinations import DEFAULT_PORTS, Url, is_address, parse_url
from isochrone_agent.settings import read_toml, suggestion
from isochrone_common.dialects.providers import CATALOGUE
from isochrone_wire.model import Target
from isochrone_wire.text import shortened

_FIELDS = ("env", "file", "hosts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """An origin that may receive a key. `scheme` `None` allows both schemes, `port` `None` any port."""

    scheme: str | None
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme or 'http(s)'}://{host}:{'*' if self.port is None else self.port}"

    def allows(self, url: Url) -> bool:
        """Return true if a request to `url` stays within this origin."""
        port = url.port or DEFAULT_PORTS[url.scheme]
        return url.host == self.host and self.scheme in (None, url.scheme) and self.port in (None, port)


def parse_origin(entry: str) -> Origin:
    """Parse an entry of `hosts`. Raises `ValueError` if it is not an origin."""
    has_scheme = "://" in entry
    bracketed = f"[{entry}]" if is_address(entry) and ":" in entry else entry
    text = bracketed if has_scheme else f"https://{bracketed}"
    url = parse_url(text)
    if text.count("/") > len("//") or set("?#@") & set(text):
        raise ValueError(f"{entry!r} is not an origin")
    is_loopback = url.host == "localhost" or (is_address(url.host) and ip_address(url.host).is_loopback)
    if is_loopback and not has_scheme:
        return Origin(scheme=None, host=url.host, port=url.port)
    return origin_of(url)


def origin_of(url: Url) -> Origin:
    """Return the origin of a URL."""
    return Origin(scheme=url.scheme, host=url.host, port=url.port or DEFAULT_PORTS[url.scheme])


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The source of one key, a variable or a file, and the `hosts` entries of the origins that may receive it."""

    name: str
    hosts: tuple[str, ...]
    env: str | None = None
    file: str | None = None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origins that may receive the key."""
        return tuple(map(parse_origin, self.hosts))

    @property
    def source(self) -> str:
        """The source of the key, for display."""
        return f"variable {self.env}" if self.env is not None else f"file {self.file}"

    def refusal(self, target: Target) -> str | None:
        """Return why a request to `target` must not carry this key: the origins requested and allowed."""
        try:
            url = parse_url(target.base_url)
        except ValueError:
            wanted = target.base_url
        else:
            if any(origin.allows(url) for origin in self.origins):
                return None
            wanted = str(origin_of(url))
        allowed = ", ".join(map(str, self.origins))
        return f"{target.name} would send the credential {self.name!r} to {wanted}; allowed: {allowed}"

    def read(self, *, otherwise: str = "") -> str:
        """Read the key. Raises `CredentialError` if it is missing, with the remedy `otherwise` too, or malformed."""
        if self.env is not None:
            key = os.environ.get(self.env, "").strip()
            if not key:
                hint = f"export {self.env}=…{otherwise}"
                raise CredentialError(f"the environment variable {self.env} is not set", hint=hint)
            return validate_key(key, f"the environment variable {self.env}")
        path = Path(self.file or "")
        hint = f"write the key to {path}, and make the file readable by the agent's user only"
        try:
            return validate_key(path.read_text().strip(), f"the key file {path}")
        except OSError as error:
            raise CredentialError(f"cannot read the key file {path}: {error.strerror}", hint=hint) from error
        except UnicodeDecodeError as error:
            raise CredentialError(f"the key file {path} is not UTF-8 text", hint=hint) from error


@dataclass(slots=True)
class Keyring:
    """The credentials by name, and the file that defines them. All parts of the agent share one instance."""

    credentials: Mapping[str, Credential] = field(default_factory=dict)
    path: Path | None = None

    def credential(self, name: str) -> Credential | None:
        """Return the credential: from the agent's file, else of a catalogue provider whose variable is set."""
        variable = _catalogue_variable(name)
        if name in self.credentials or variable is None or not os.environ.get(variable, "").strip():
            return self.credentials.get(name)
        origin = origin_of(parse_url(CATALOGUE[name].base_url))
        return Credential(name=name, env=variable, hosts=(str(origin),))

    def describe(self, target: Target) -> list[str]:
        """Return the name and source of the credential of `target`, for display; empty if it has none."""
        credential = self.credential(target.credential) if target.credential else None
        return [f"{credential.name} ({credential.source})"] if credential else []

    def key_for(self, target: Target) -> str | None:
        """Return the key of `target`, or `None` if it needs none. Raises `CredentialError`."""
        if target.credential is None:
            return None
        credential = self.credential(target.credential)
        if credential is None:
            message = f"{target.name} needs the credential {target.credential!r}, which this agent does not have"
            raise CredentialError(message, hint=self._how_to_define(target.credential))
        if refusal := credential.refusal(target):
            file = self.path or "the file of --credentials"
            hint = f"to allow it, add the origin to hosts under [{credential.name}] in {file}"
            raise CredentialError(refusal, hint=hint)
        return credential.read()

    def missing(self, targets: Iterable[Target]) -> dict[str, CredentialError]:
        """Return, by target name, why the targets that lack their key lack it."""
        errors = {}
        for target in targets:
            try:
                self.key_for(target)
            except CredentialError as error:
                errors[target.name] = error
        return errors

    def _how_to_define(self, name: str) -> str:
        """Return the hint for a credential that is not defined: the table and its file, or the catalogue's variable."""
        known = ", ".join(sorted(self.credentials)) or "none"
        table = (
            f"add a [{name}] table to {self.path}; known: {known}"
            if self.path
            else f"write a [{name}] table with env or file, and hosts, to a file, and pass it with --credentials FILE"
        )
        variable = _catalogue_variable(name)
        return f"{table}; or set {variable}" if variable else table


def describe_missing(errors: Mapping[str, CredentialError]) -> str:
    """Return a sentence per reason, about the first target that has it, cut for logs and the heartbeat."""
    targets_of: dict[str, list[str]] = {}
    for target, error in errors.items():
        targets_of.setdefault(str(error).replace(target, ""), []).append(target)
    return shortened("; ".join(_about(targets, str(errors[targets[0]])) for targets in targets_of.values()))


def _about(targets: list[str], reason: str) -> str:
    first, *others = targets
    sentence = reason if first in reason else f"{first}: {reason}"
    return f"{sentence} (and {len(others)} more like it)" if others else sentence


def validate_key(key: str, source: str) -> str:
    """Return `key` if an HTTP header can carry it. Raises `CredentialError`, which never quotes the key."""
    if not key:
        raise CredentialError(f"{source} is empty", hint="it must contain the key and nothing else")
    if not (key.isascii() and key.isprintable() and " " not in key):
        fault = "more than one line or word" if key.split() != [key] else "a character that is not printable ASCII"
        raise CredentialError(f"{source} contains {fault}", hint="it must contain the key and nothing else")
    return key


def load_keyring(path: Path | None) -> Keyring:
    """Load a credentials file; without one the keyring is empty. Raises `CredentialError` that lists every problem."""
    if path is None:
        return Keyring()
    _, tables = read_toml(path, CredentialError)
    problems = [problem for name, table in tables.items() for problem in _problems(name, table)]
    if problems:
        raise CredentialError(f"{path}: {'; '.join(problems)}", hint="each table needs env or file, and hosts")
    credentials = {
        name: Credential(
            name=name, hosts=tuple(table["hosts"]), **{key: str(table[key]) for key in ("env", "file") if key in table}
        )
        for name, table in tables.items()
    }
    return Keyring(credentials, path)


def _problems(name: str, table: object) -> list[str]:
    if not isinstance(table, dict):
        return [f"{name} is outside any [table]"]
    unknown = [key for key in table if key not in _FIELDS]
    problems = [f"[{name}] has an unknown key {key!r}{suggestion(key, _FIELDS)}" for key in unknown]
    if ("env" in table) == ("file" in table):
        problems.append(f"[{name}] needs either env or file")
    hosts = table.get("hosts")
    if not (isinstance(hosts, list) and hosts and all(isinstance(host, str) for host in hosts)):
        return [*problems, f"[{name}] needs hosts, a list of host names, host:port or http://host"]
    for host in hosts:
        try:
            parse_origin(host)
        except ValueError:
            problems.append(f"[{name}] has {host!r} in hosts, which is not an origin")
    return problems


def _catalogue_variable(name: str) -> str | None:
    """Return the key variable of a catalogue provider whose base URL is complete."""
    provider = CATALOGUE.get(name)
    return provider.key_env if provider and "{" not in provider.base_url else None
