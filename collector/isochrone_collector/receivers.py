"""Receivers of alerts: their settings, from a file. Secrets come from the environment or from files of mode 0600.

No error repeats an address, a key or a secret.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

from isochrone_collector import webhook_signature
from isochrone_collector.errors import SettingsError
from isochrone_wire import durations
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.text import is_http_url, unknown

DEFAULT_GROUP_US = 10 * SECOND_US
"""Time for which alerts of a receiver wait for others of their group, in microseconds."""
PLACEHOLDERS = (
    "id", "key", "state", "kind", "severity", "title", "text", "subject", "sentence", "raised_at", "count",
    "still_open", "details", "alerts",
)  # fmt: skip
"""The names that a template may contain, each as `$name` or `${name}`."""

_MAX_GROUP_US = 3600 * SECOND_US
_MIN_REPEAT_US, _MAX_REPEAT_US = 60 * SECOND_US, 30 * DAY_US
_NAME = re.compile(r"[A-Za-z0-9._-]{1,40}")
_SHARED_BITS = 0o077
_HINT = "docs/alerts.md has an example"


class Format(StrEnum):
    """The format of the requests to a receiver."""

    STANDARD = "standard"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    OPSGENIE = "opsgenie"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A receiver of alerts. Groups wait for `group_us`; open incidents are repeated every `repeat_us`, 0 for never."""

    name: str
    format: Format
    url: str = field(repr=False)
    secret: bytes = field(default=b"", repr=False)
    key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Any = field(default=None, repr=False)
    kinds: frozenset[AlertKind] | None = None
    group_us: int = DEFAULT_GROUP_US
    repeat_us: int = 0

    @property
    def shown(self) -> str:
        """Return the URL without its secret parts."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


DEFAULT_URL = {Format.PAGERDUTY: "https://events.pagerduty.com/v2/enqueue", Format.OPSGENIE: "https://api.opsgenie.com"}
_KEYS = {"name", "format", "url", "allow_http", "kinds", "group", "repeat"}
_OWN_KEYS = {
    Format.STANDARD: {"secret"},
    Format.SLACK: set[str](),
    Format.PAGERDUTY: {"key"},
    Format.OPSGENIE: {"key"},
    Format.TEMPLATE: {"body", "headers"},
}
# A change of a route calls no one out at night, unless `kinds` has it.
_PAGING = frozenset(AlertKind) - {AlertKind.ROUTE_SWITCHED}
_DEFAULT_KINDS = {Format.PAGERDUTY: _PAGING, Format.OPSGENIE: _PAGING}


def read(path: Path, environment: Mapping[str, str]) -> tuple[Receiver, ...]:
    """Return the receivers of a file. Raises `SettingsError`."""
    # YAML is needed only here; a collector without such a file does not load it.
    from isochrone_wire.plan_document import document  # noqa: PLC0415  # see above

    source = document.read_yaml(_text(path, "--alert-receivers"))
    if source.problems:
        raise SettingsError(f"{path}: {source.problems[0]}", hint=_HINT)
    listed = source.data.get("receivers") if isinstance(source.data, dict) and len(source.data) == 1 else None
    if not isinstance(listed, list) or not listed:
        raise SettingsError(f"{path}: the only key is `receivers`, with a list", hint=_HINT)
    found: list[Receiver] = []
    for number, part in enumerate(listed):
        reader = _Reader(part=part if isinstance(part, dict) else {}, folder=path.parent, environment=environment)
        try:
            found.append(reader.receiver())
        except ValueError as error:
            name = part.get("name") if isinstance(part, dict) else None
            where = f"line {source.line_of(('receivers', number))}: receiver {name or number + 1}"
            raise SettingsError(f"{path}: {where}: {error}", hint=_HINT) from error
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingsError(f"{path}: two receivers are named {twice!r}", hint="names are in the database: keep them")
    return tuple(found)


def check_url(url: str, *, allow_http: bool) -> str:
    """Return a URL if it is https, or http where that is allowed. Raises `ValueError`, which does not repeat it."""
    if not is_http_url(url):
        raise ValueError("the url is not an http or https URL")
    parts = urlsplit(url)
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname or ""):
        raise ValueError("the url is not https; `allow_http: true` sends alerts and keys in plain text")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"{path} cannot be read: {reason}", hint=f"see {what}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """One receiver of the file, as plain data. Methods raise `ValueError` or `SettingsError`."""

    part: Mapping[str, Any]
    folder: Path
    environment: Mapping[str, str]

    def receiver(self) -> Receiver:
        """Return the receiver."""
        try:
            kind = Format(str(self.part.get("format")))
        except ValueError:
            raise ValueError(unknown("format", str(self.part.get("format")), list(Format))) from None
        name, headers = self.part.get("name"), self.part.get("headers", {})
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError("`name` is 1 to 40 letters, digits, dots, dashes or underscores")
        if unknown_keys := [key for key in self.part if key not in _KEYS | _OWN_KEYS[kind]]:
            raise ValueError(unknown("key", str(unknown_keys[0]), sorted(_KEYS | _OWN_KEYS[kind])))
        if not isinstance(headers, dict) or not all(isinstance(one, str) for one in headers):
            raise ValueError("`headers` are names with values")
        return Receiver(
            name=name,
            format=kind,
            url=check_url(self._url(kind), allow_http=self.part.get("allow_http") is True),
            secret=webhook_signature.parse_secret(self._secret("secret")) if kind is Format.STANDARD else b"",
            key=self._secret("key") if "key" in _OWN_KEYS[kind] else "",
            headers={name: self._given(value, "headers") for name, value in headers.items()},
            body=self._body() if kind is Format.TEMPLATE else None,
            kinds=self._kinds() if "kinds" in self.part else _DEFAULT_KINDS.get(kind),
            group_us=self._duration("group", DEFAULT_GROUP_US, (0, _MAX_GROUP_US)),
            repeat_us=self._duration("repeat", 0, (_MIN_REPEAT_US, _MAX_REPEAT_US)),
        )

    def _url(self, kind: Format) -> str:
        if kind is Format.SLACK:
            return self._secret("url")
        url = self.part.get("url", DEFAULT_URL.get(kind))
        if url is None:
            raise ValueError("`url` is missing")
        return self._given(url, "url")

    def _secret(self, name: str) -> str:
        """Return a secret, which the file itself must not contain."""
        if not isinstance(self.part.get(name), dict):
            raise ValueError(  # noqa: TRY004  # an error of the file, not of a caller
                f"`{name}` is a secret: write `{name}: {{env: NAME}}` or `{name}: {{file: PATH}}`"
            )
        return self._given(self.part[name], name)

    def _given(self, value: object, name: str) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, dict) and len(value) == 1:
            [(source, where)] = value.items()
            if source == "env" and (text := self.environment.get(str(where))):
                return text
            if source == "env":
                raise ValueError(f"`{name}`: the variable {where} is not set")
            if source == "file":
                path = self.folder / str(where)
                text = _text(path, name).strip()
                if path.stat().st_mode & _SHARED_BITS:
                    raise ValueError(f"`{name}`: others can read {path}: run chmod 600 {path}")
                return text
        raise ValueError(f"`{name}` is a text, `{{env: NAME}}` or `{{file: PATH}}`")

    def _body(self) -> object:
        body = self.part.get("body")
        if isinstance(body, str):
            try:
                body = json.loads(body)
            except ValueError as error:
                raise ValueError(f"`body` is not JSON: {error}") from None
        if not isinstance(body, dict | list):
            raise ValueError("`body` is a JSON object or list, as text or as YAML")  # noqa: TRY004  # as above
        for text in _texts(body):
            template = Template(text)
            if not template.is_valid():
                raise ValueError(f"`body`: a placeholder in {text!r} is malformed; a dollar sign itself is `$$`")
            for name in template.get_identifiers():
                if name not in PLACEHOLDERS:
                    raise ValueError(f"`body`: {unknown('placeholder', name, PLACEHOLDERS)}")
        return body

    def _kinds(self) -> frozenset[AlertKind]:
        kinds = self.part["kinds"]
        known = {kind.value: kind for kind in AlertKind}
        if not isinstance(kinds, list) or not kinds:
            raise ValueError("`kinds` is a list of kinds of alerts")
        if wrong := next((kind for kind in kinds if kind not in known), None):
            raise ValueError(unknown("kind", str(wrong), sorted(known)))
        return frozenset(known[kind] for kind in kinds)

    def _duration(self, name: str, default_us: int, limits_us: tuple[int, int]) -> int:
        if name not in self.part:
            return default_us
        text = str(self.part[name])
        duration_us = 0 if text in ("0", "0s") else durations.parse_us(text)
        low_us, high_us = limits_us
        if duration_us and not low_us <= duration_us <= high_us:
            raise ValueError(f"`{name}: {text}` is outside {durations.write(low_us)} to {durations.write(high_us)}")
        return duration_us


def _texts(part: object) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list):
        for value in part.values() if isinstance(part, dict) else part:
            yield from _texts(value)
