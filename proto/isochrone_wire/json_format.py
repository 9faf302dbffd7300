"""JSON form of the value classes, shared by all commands: units as in the model, instants as RFC 3339 text."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, IntFlag
from functools import cache
from math import isfinite
from operator import attrgetter
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
    return _conversion(kind)(value)


def fields_to_json(value: Any, names: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401  # any value class
    """Return the fields of these names as `to_json_value` does, by name."""
    kind: Any = type(value)
    return _fields_conversion(kind, tuple(names))(value)


@cache
def _conversion(kind: type) -> Callable[[Any], Any]:
    """Return `to_json_value` for values of one class: answers have thousands of each."""
    if is_dataclass(kind):
        return _fields_conversion(kind, tuple(field.name for field in fields(kind)), getattr(kind, "DERIVED", ()))
    return next((convert for base, convert in _CONVERSIONS.items() if issubclass(kind, base)), _as_it_is)


@cache
def _fields_conversion(
    kind: Any,  # noqa: ANN401  # any value class
    names: tuple[str, ...],
    derived: tuple[str, ...] = (),
) -> Callable[[Any], dict[str, Any]]:
    """Return `fields_to_json` for values of one class, with `derived` attributes as they are."""
    values_of: Callable[[Any], tuple[Any, ...]] = (
        attrgetter(*names) if len(names) > 1 else lambda owner: tuple(getattr(owner, name) for name in names)
    )
    instants = [name for name in names if name.endswith("_at")]
    prefix = kind.ID_PREFIX if "id" in names and hasattr(kind, "ID_PREFIX") else None

    def convert(owner: Any) -> dict[str, Any]:  # noqa: ANN401  # a value of the class
        # A call for each number would take as long as everything else.
        found = {
            name: value
            if (of := type(value)) in _AS_THEY_ARE or (of is float and isfinite(value))
            else to_json_value(value)
            for name, value in zip(names, values_of(owner), strict=True)
        }
        for name in instants:
            if isinstance(found[name], int):
                found[name] = rfc3339(found[name])
        if prefix is not None:
            found["id"] = public_id(prefix, owner.id)
        for name in derived:
            found[name] = getattr(owner, name)
        return found

    return convert


def _as_it_is(value: Any) -> Any:  # noqa: ANN401  # any other value
    return value


# By the class of a value or the first one here that it is derived from.
_CONVERSIONS: Mapping[type, Callable[[Any], Any]] = {
    IntFlag: lambda value: [flag.name.lower() for flag in value if flag.name],
    Enum: lambda value: value.value,
    float: lambda value: value if isfinite(value) else None,
    bytes: lambda value: base64.b64encode(value).decode(),
    Mapping: lambda value: {key: to_json_value(part) for key, part in value.items()},
    tuple: lambda value: [to_json_value(part) for part in value],
    list: lambda value: [to_json_value(part) for part in value],
}
