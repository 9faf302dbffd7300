"""Provider keys: named in the plan, kept here, sent only to the origins they are meant for.

`credentials.toml`, the agent's own file, says for each name where the key is and which hosts may have it, over TLS (see
`isochrone_agent.plan.origin`):

    [deepseek]
    env = "DEEPSEEK_API_KEY"          # or: file = "/run/secrets/deepseek"
    hosts = ["api.deepseek.com"]

A name that is not there and is that of a provider of the catalogue means its variable, if that is set, and that
provider's own address. So a plan, whoever wrote it, cannot make an agent send a key anywhere else.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from isochrone_agent.errors import CredentialError
from isochrone_agent.plan.origin import Origin, origin_of, parse_origin
from isochrone_agent.probe.providers import CATALOGUE
from isochrone_agent.url import parse_url
from isochrone_wire.model import Target

_FIELDS = ("env", "file", "hosts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Where one key is found (an environment variable or a file) and the hosts it may be sent to, which are entries as
    `parse_origin` takes them.
    """

    name: str
    hosts: tuple[str, ...]
    env: str | None = None
    file: str | None = None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where the key may be sent."""
        return tuple(map(parse_origin, self.hosts))

    @property
    def source(self) -> str:
        """Where the key comes from, for people."""
        return f"variable {self.env}" if self.env is not None else f"file {self.file}"

    def refusal(self, target: Target) -> str | None:
        """Why a request to `target` may not carry this key, with the origin wanted and those allowed; `None` when it
        may.
        """
        try:
            url = parse_url(target.base_url)
        except ValueError:
            wanted = target.base_url
        else:
            if any(origin.allows(url) for origin in self.origins):
                return None
            wanted = str(origin_of(url))
        allowed = ", ".join(map(str, self.origins))
        return f"{target.name} would send the credential {self.name!r} to {wanted}, allowed is {allowed}"

    def read(self) -> str:
        """The key itself. Raises `CredentialError` when it is not there, or is no key."""
        if self.env is not None:
            key = os.environ.get(self.env, "").strip()
            if not key:
                raise CredentialError(f"the environment variable {self.env} is not set", hint=f"export {self.env}=…")
            return checked_key(key, f"the environment variable {self.env}")
        path = Path(self.file or "")
        hint = f"put the key into {path}, readable by the agent's user only"
        try:
            return checked_key(path.read_text().strip(), f"the key file {path}")
        except OSError as error:
            raise CredentialError(f"the key file {path} cannot be read: {error.strerror}", hint=hint) from error
        except UnicodeDecodeError as error:
            raise CredentialError(f"the key file {path} does not hold text", hint=hint) from error


@dataclass(slots=True)
class Keyring:
    """The keys of this agent by credential name; never shown. Everybody holds the same one, so that all take up a
    file that has changed.
    """

    credentials: Mapping[str, Credential] = field(default_factory=dict)

    def renew(self, newer: "Keyring") -> None:
        """Hold what another holds."""
        self.credentials = newer.credentials

    def credential(self, name: str) -> Credential | None:
        """The credential of this name: of the agent's own file, else of a provider of the catalogue whose variable is
        set.
        """
        return self.credentials.get(name) or _of_catalogue(name)

    def told(self, target: Target) -> list[str]:
        """The name of the key of `target` and where it comes from, for people; nothing when there is none."""
        credential = self.credential(target.credential) if target.credential else None
        return [f"{credential.name} ({credential.source})"] if credential else []

    def key_for(self, target: Target) -> str | None:
        """The key that `target` needs, or `None` when it needs none.

        Raises `CredentialError` when it is missing, or when the target's origin is not one the key is meant for.
        """
        if target.credential is None:
            return None
        credential = self.credential(target.credential)
        if credential is None:
            known = ", ".join(sorted(self.credentials)) or "none"
            variable = _variable_of(target.credential)
            hint = f"add a [{target.credential}] table to credentials.toml; known: {known}"
            hint += f"; or set {variable}" if variable else ""
            raise CredentialError(f"{target.name} needs the credential {target.credential!r}, unknown here", hint=hint)
        if refusal := credential.refusal(target):
            hint = f"if it may have this key, add it to hosts under [{credential.name}] in credentials.toml"
            raise CredentialError(refusal, hint=hint)
        return credential.read()


def checked_key(key: str, whence: str) -> str:
    """`key`, if a header can carry it. Raises `CredentialError`, which says where it came from and not what it is."""
    if not key:
        raise CredentialError(f"{whence} is empty", hint="it should hold the key and nothing else")
    if not (key.isascii() and key.isprintable() and " " not in key):
        wrong = "more than one line or word" if key.split() != [key] else "a character that no key has"
        raise CredentialError(f"{whence} holds {wrong}", hint="it should hold the key and nothing else")
    return key


def load_keyring(path: Path | None) -> Keyring:
    """The keyring of a credentials file; empty without one. Raises `CredentialError` with all problems at once."""
    if path is None:
        return Keyring()
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise CredentialError(
            f"{path} cannot be read: {error.strerror}", hint="see isochrone-agent run --help"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise CredentialError(f"{path} is not TOML: {error}", hint="see isochrone-agent run --help") from error
    problems = [problem for name, table in tables.items() for problem in _problems(name, table)]
    if problems:
        raise CredentialError(f"{path}: {'; '.join(problems)}", hint="each table wants env or file, and hosts")
    return Keyring({name: _credential(name, table) for name, table in tables.items()})


def _problems(name: str, table: object) -> list[str]:
    if not isinstance(table, dict):
        return [f"{name} stands outside any [table]"]
    unknown = [key for key in table if key not in _FIELDS]
    problems = [f"[{name}] has an unknown key {key!r}{_nearest(key)}" for key in unknown]
    if ("env" in table) == ("file" in table):
        problems.append(f"[{name}] needs either env or file")
    hosts = table.get("hosts")
    if not (isinstance(hosts, list) and hosts and all(isinstance(host, str) for host in hosts)):
        return [*problems, f"[{name}] needs hosts, a list of host names, host:port or http://host"]
    return problems + [f"[{name}] has {host!r} among its hosts" for host in hosts if not _is_origin(host)]


def _variable_of(name: str) -> str | None:
    """The variable in which the catalogue looks for the key of a provider whose address is known."""
    provider = CATALOGUE.get(name)
    return provider.key_env if provider and not provider.has_placeholder else None


def _of_catalogue(name: str) -> Credential | None:
    variable = _variable_of(name)
    if variable is None or not os.environ.get(variable, "").strip():
        return None
    origin = origin_of(parse_url(CATALOGUE[name].base_url))
    return Credential(name=name, env=variable, hosts=(str(origin),))


def _is_origin(text: str) -> bool:
    try:
        parse_origin(text)
    except ValueError:
        return False
    return True


def _nearest(key: str) -> str:
    close = get_close_matches(key, _FIELDS, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _credential(name: str, table: dict[str, object]) -> Credential:
    hosts = table["hosts"]
    assert isinstance(hosts, list)
    env, file = (str(table[kind]) if kind in table else None for kind in ("env", "file"))
    return Credential(name=name, hosts=tuple(hosts), env=env, file=file)
