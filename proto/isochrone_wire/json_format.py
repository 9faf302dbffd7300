"""JSON form of the value classes, shared by all commands: units as in the model, instants as RFC 3339 text."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, IntFlag
from functools import cache
from types import NoneType
from typing import Any

from isochrone_wire.durations import SECOND_US
from isochrone_wire.stable_ids import public_id

# Most values of most answers. Subclasses of them, such as flags, are none.
_AS_THEY_ARE = frozenset({int, str, bool, NoneType})


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
    bytes base64, and ids their public form. Numbers that JSON cannot express are `None`.
    """
    kind: Any = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if is_dataclass(value):
        encoded = fields_to_json(value, _names_of(kind))
        return encoded | {name: getattr(value, name) for name in getattr(value, "DERIVED", ())}
    if isinstance(value, Enum):
        return [flag.name.lower() for flag in value if flag.name] if isinstance(value, IntFlag) else value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: to_json_value(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [to_json_value(part) for part in value]
    return value


def fields_to_json(value: Any, names: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401  # any value class
    """Return the fields of these names as `to_json_value` does, by name."""
    return {name: _field_value(value, name) for name in names}


@cache
def _names_of(kind: Any) -> tuple[str, ...]:  # noqa: ANN401  # any value class
    return tuple(field.name for field in fields(kind))


def _field_value(owner: Any, name: str) -> Any:  # noqa: ANN401  # a field of any type
    value = getattr(owner, name)
    if name == "id" and hasattr(owner, "ID_PREFIX"):
        return public_id(owner.ID_PREFIX, value)
    return rfc3339(value) if name.endswith("_at") and isinstance(value, int) else to_json_value(value)
