"""The user's configuration: named collectors (contexts), the current one, and defaults of options.

    current = "prod"

    [defaults]
    output = "table"
    timeout = 30
    baseline = "us-east-2"

    [contexts.prod]
    collector = "collector.example:4600"
    identity = "/home/ida/.config/isochrone/prod.json"
    baseline = "eu-central-1"

It is `$XDG_CONFIG_HOME/isochrone/config.toml`, by default in ~/.config. A context's own defaults precede `[defaults]`;
environment variables precede both, and options precede everything. `output` is the default of commands that print an
answer in one of its formats, not of those that write a file in another: `report`, `samples export`, `routes export`.
"""

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from isochrone_client.errors import ConfigurationError
from isochrone_client.render import OUTPUTS
from isochrone_common.files import expand_home, replace_file
from isochrone_wire.text import unknown

FILE_NAME = "config.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SECONDS = (0.1, 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of options; `None` leaves the program's own. `timeout` is in seconds."""

    output: str | None = None
    timeout: float | None = None
    baseline: str | None = None

    def over(self, other: "Defaults") -> "Defaults":
        """These, and the other's where nothing is set."""
        return replace(other, **{name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A named collector: its address, the identity file to use with it, and defaults."""

    name: str
    collector: str
    identity: Path | None = None
    defaults: Defaults = field(default_factory=Defaults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The contents of the configuration file."""

    current: str | None = None
    defaults: Defaults = field(default_factory=Defaults)
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def select(self, collector: str | None) -> Context | None:
        """The context of that name, or without a name the current one; `None` for an address."""
        return self.contexts.get(collector or self.current or "")

    def named(self, name: str) -> Context:
        """The context of that name. Raises `ConfigurationError`."""
        if name not in self.contexts:
            hint = "add one with `isochrone context add NAME HOST:PORT`"
            raise ConfigurationError(unknown("context", name, self.contexts), hint=hint)
        return self.contexts[name]

    def including(self, context: Context, *, current: bool) -> "Configuration":
        """The configuration with this context added or replaced, and made the current one if `current`."""
        return replace(
            self,
            contexts={**self.contexts, context.name: context},
            current=context.name if current or self.current is None else self.current,
        )

    def without(self, name: str) -> "Configuration":
        """The configuration without the context of that name. Raises `ConfigurationError`."""
        self.named(name)
        rest = {other: context for other, context in self.contexts.items() if other != name}
        return replace(self, contexts=rest, current=None if self.current == name else self.current)


def folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of configuration and identities."""
    return expand_home(environment.get("XDG_CONFIG_HOME") or "~/.config") / "isochrone"


def path_of(environment: Mapping[str, str] = os.environ) -> Path:
    """The configuration file."""
    return folder(environment) / FILE_NAME


def read(environment: Mapping[str, str] = os.environ) -> Configuration:
    """The configuration, empty if the file does not exist. Raises `ConfigurationError`."""
    path = path_of(environment)
    try:
        return parse(path.read_text("utf-8"))
    except FileNotFoundError:
        return Configuration()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", hint="make it readable") from error
    except (ValueError, ConfigurationError) as error:
        raise ConfigurationError(f"{path}: {error}", hint="correct the file; see docs/asking.md") from error


def write(configuration: Configuration, environment: Mapping[str, str] = os.environ) -> Path:
    """Replace the file in one step, readable by its owner only. Raises `ConfigurationError`."""
    path = path_of(environment)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, to_text(configuration).encode())
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}", hint="see XDG_CONFIG_HOME") from error
    return path


def defaults_for(collector: str | None, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The defaults of options by parameter, for a context's name, an address, or without either the current context."""
    configuration = read(environment)
    context = configuration.select(collector)
    found = (context.defaults if context else Defaults()).over(configuration.defaults)
    values = {"output": found.output, "timeout_us": found.timeout, "baseline": found.baseline}
    return {name: value for name, value in values.items() if value is not None}


def check_name(name: str) -> str:
    """The name, if a context may have it. Raises `ConfigurationError`."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot name a context", hint="use letters, digits, hyphens, dots and underscores"
        )
    return name


def parse(text: str) -> Configuration:
    """The configuration in a TOML text. Raises `ValueError` and `ConfigurationError`."""
    import tomllib  # noqa: PLC0415  # only where there is a configuration

    document = tomllib.loads(text)
    _check_keys("", document, ("current", "defaults", "contexts"))
    contexts = {}
    for name, content in _table("contexts", document.get("contexts", {})).items():
        where = f"contexts.{check_name(name)}"
        defaults = _defaults(where, part := _table(where, content), ("collector", "identity"))
        collector, identity = (_text(f"{where}.{key}", part.get(key)) for key in ("collector", "identity"))
        if collector is None:
            raise ConfigurationError(f"{where} has no `collector`")
        path = expand_home(identity) if identity else None
        contexts[name] = Context(name=name, collector=collector, identity=path, defaults=defaults)
    found = Configuration(
        current=_text("current", document.get("current")),
        defaults=_defaults("defaults", _table("defaults", document.get("defaults", {})), ()),
        contexts=contexts,
    )
    if found.current is not None:
        found.named(found.current)
    return found


def to_text(configuration: Configuration) -> str:
    """The configuration as TOML."""
    sections: dict[str, dict[str, Any]] = {"": {"current": configuration.current}}
    sections["[defaults]"] = asdict(configuration.defaults)
    for name, context in sorted(configuration.contexts.items()):
        identity = str(context.identity) if context.identity else None
        values = {"collector": context.collector, "identity": identity, **asdict(context.defaults)}
        sections[f"[contexts.{json.dumps(name)}]"] = values
    parts = ["# Read and written by isochrone; see `isochrone context --help`.\n"]
    for heading, values in sections.items():
        # TOML's basic strings have the escapes of JSON.
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items() if value is not None]
        parts += ["\n".join([*filter(None, [heading]), *lines, ""])] if lines else []
    return "\n".join(parts)


def _defaults(where: str, part: Mapping[str, Any], more: tuple[str, ...]) -> Defaults:
    _check_keys(where, part, ("output", "timeout", "baseline", *more))
    output, timeout = _text(f"{where}.output", part.get("output")), part.get("timeout")
    if output is not None and output not in OUTPUTS:
        raise ConfigurationError(f"{where}.output: {unknown('format', output, OUTPUTS)}")
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and _SECONDS[0] <= timeout <= _SECONDS[1]):
        raise ConfigurationError(f"{where}.timeout: {timeout!r} is not a number of seconds from 0.1 to 3600")
    return Defaults(output=output, timeout=timeout, baseline=_text(f"{where}.baseline", part.get("baseline")))


def _check_keys(where: str, part: Mapping[str, Any], known: Collection[str]) -> None:
    for key in part.keys() - set(known):
        raise ConfigurationError(f"{where}: {unknown('key', key, known)}" if where else unknown("key", key, known))


def _table(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be a table")
    return value


def _text(where: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{where} must be a text")
    return value
