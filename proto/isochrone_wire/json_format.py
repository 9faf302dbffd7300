"""JSON form of the value classes, shared by all commands: units as in the model, instants as RFC 3339 text."""

import base64
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from isochrone_wire.model import SECOND_US, Quality, Sample

_DERIVED = ("connect_us", "ttft_cold_us", "tpot_us")


def rfc3339(at: int) -> str:
    """Format microseconds since the Unix epoch as `2026-11-21T08:00:00.123456Z`."""
    seconds, micros = divmod(at, SECOND_US)
    whole = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    return whole.isoformat(timespec="microseconds").replace("+00:00", "Z")


def minute(at: int) -> str:
    """Format microseconds since the Unix epoch to the minute, `2026-11-01 00:00`, in UTC."""
    return rfc3339(at)[:16].replace("T", " ")


def to_json_value(value: Any) -> Any:  # noqa: ANN401  # any value of the wire, nested
    """Return `value` as dicts, lists, strings and numbers. A sample includes its derived durations; flags are names,
    and bytes base64.
    """
    if is_dataclass(value):
        encoded = {field.name: _field_value(field.name, getattr(value, field.name)) for field in fields(value)}
        return encoded | {name: getattr(value, name) for name in _DERIVED} if isinstance(value, Sample) else encoded
    if isinstance(value, Quality):
        return list(value.labels)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: to_json_value(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [to_json_value(part) for part in value]
    return value


def _field_value(name: str, value: Any) -> Any:  # noqa: ANN401  # a field of any type
    return rfc3339(value) if name.endswith("_at") and isinstance(value, int) else to_json_value(value)
