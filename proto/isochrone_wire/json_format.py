"""JSON form of the value classes, shared by all programs: units as in the model, instants as RFC 3339 text.

The laws:

1. `from_json(type(v), to_json_value(v)) == v` for every value v; a number that JSON cannot express becomes NaN, or
   `None` where that is allowed.
2. Unknown fields are ignored, and fields that are missing have their default.
3. Data that a class cannot represent raise `JsonError` with the name of the field, and never another exception.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, IntFlag
from functools import cache, partial
from json.encoder import encode_basestring
from math import isfinite, nan
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from isochrone_wire.durations import SECOND_US
from isochrone_wire.stable_ids import parse_public_id, public_id

Value = TypeVar("Value")
Reader = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SHOWN = 60

# Most values of most answers. Subclasses of them, such as flags, are none.
_AS_THEY_ARE = frozenset({int, str, bool, NoneType})


def rfc3339(at: int) -> str:
    """Format microseconds since the Unix epoch as `2026-11-21T08:00:00.123456Z`."""
    seconds, micros = divmod(at, SECOND_US)
    whole = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    return whole.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> int:
    """Parse an instant with an offset as microseconds since the Unix epoch. Raises `ValueError`."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return (moment - _EPOCH) // _MICROSECOND


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
    if is_dataclass(kind):
        return _fields_conversion(kind, tuple(field.name for field in fields(kind)), getattr(kind, "DERIVED", ()))
    return next((convert for base, convert in _CONVERSIONS.items() if issubclass(kind, base)), lambda value: value)


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


class JsonError(ValueError):
    """Data that do not represent a value. The message begins with the field: `rows.3.ttft_us: 'fast' is not an int`."""

    def __init__(self, problem: str, *path: str) -> None:
        super().__init__(f"{'.'.join(path)}: {problem}" if path else problem)
        self.problem = problem
        self.path = path

    def within(self, part: object) -> "JsonError":
        """Return the error of the value that contains this one as a part of this name."""
        return JsonError(self.problem, str(part), *self.path)


def from_json(cls: type[Value], data: object) -> Value:
    """Return the value of class `cls` that `data` represents, in the form of `to_json_value`. Raises `JsonError`."""
    kind: Any = cls
    value: Value = _reader(kind)(data)
    return value


@cache
def _reader(hint: Any) -> Reader:  # noqa: ANN401  # a type hint has no narrower type
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return _optional(_reader(next(part for part in arguments if part is not NoneType)))
    if origin is tuple:
        inner = _reader(arguments[0])
        return lambda data: tuple(_parts(enumerate(_typed(list, data)), inner).values())
    if origin is Mapping:
        inner = _reader(arguments[1])
        return lambda data: _parts(_typed(dict, data).items(), inner)
    if is_dataclass(hint):
        return _object_reader(hint)
    if issubclass(hint, IntFlag):
        return partial(_flags, hint)
    return _READERS[hint] if hint in _READERS else partial(_parsed, hint)


def _object_reader(cls: Any) -> Reader:  # noqa: ANN401  # a value class; mypy has no name for those
    hints = get_type_hints(cls)
    readers = {field.name: _field_reader(cls, field.name, hints[field.name]) for field in fields(cls)}
    required = {field.name for field in fields(cls) if field.default is field.default_factory is MISSING}

    def read(data: Any) -> Any:  # noqa: ANN401  # any data
        content, name = {}, ""
        _typed(dict, data)
        try:
            for name, reader in readers.items():
                if name in data:
                    content[name] = reader(data[name])
        except JsonError as error:
            raise error.within(name) from None
        if not required <= content.keys():
            raise JsonError("is missing", min(required - content.keys()))
        return cls(**content)

    return read


def _field_reader(cls: Any, name: str, hint: Any) -> Reader:  # noqa: ANN401  # as above
    if name == "id" and hasattr(cls, "ID_PREFIX"):
        return partial(_parsed, partial(parse_public_id, cls.ID_PREFIX))
    if not name.endswith("_at"):
        return _reader(hint)
    read = partial(_parsed, parse_rfc3339)
    return _optional(read) if NoneType in get_args(hint) else read


def _optional(read: Reader) -> Reader:
    return lambda data: None if data is None else read(data)


def _parts(named: Iterable[tuple[Any, Any]], read: Reader) -> dict[Any, Any]:
    found = {}
    for name, part in named:
        try:
            found[name] = read(part)
        except JsonError as error:
            raise error.within(name) from None
    return found


def _typed(kind: type, data: Any) -> Any:  # noqa: ANN401  # an instance of `kind`
    if type(data) is kind:
        return data
    raise JsonError(f"{data!r:.{_SHOWN}} is not {_NAMES.get(kind, kind.__name__)}")


def _parsed(parse: Callable[[str], Any], data: object) -> Any:  # noqa: ANN401  # as `parse` returns it
    text = _typed(str, data)
    try:
        return parse(text)
    except (ValueError, OverflowError) as error:
        raise JsonError(f"{error}") from None


def _number(data: object) -> float:
    if type(data) is float or type(data) is int:
        return float(data)
    return nan if data is None else _typed(float, data)


def _flags(kind: Any, data: object) -> Any:  # noqa: ANN401  # an enumeration of flags
    names = {flag.name.lower(): flag for flag in kind}
    found = kind(0)
    for name in _typed(list, data):
        if _typed(str, name) not in names:
            raise JsonError(f"{name!r:.{_SHOWN}} is not a valid {kind.__name__}")
        found |= names[name]
    return found


_NAMES = {int: "an integer", str: "text", bool: "true or false", float: "a number", list: "a list", dict: "an object"}
_READERS: Mapping[type, Reader] = {
    int: partial(_typed, int),
    str: partial(_typed, str),
    bool: partial(_typed, bool),
    float: _number,
    bytes: partial(_parsed, partial(base64.b64decode, validate=True)),
}


# JSON text is made directly: answers have thousands of rows. It equals the text of `to_json_value` on one line.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_FEWEST_FIELDS = 2


def plain_text(value: object) -> str:
    """Return plain data, as `to_json_value` returns it, as JSON on one line."""
    return _ENCODER.encode(value)


def json_text(value: Any) -> str:  # noqa: ANN401  # any value of the wire, nested
    """Return a value of the wire as JSON on one line."""
    return _WRITERS[type(value)](value)


class _Writers(dict[type, Callable[[Any], str]]):
    """`json_text` for values of each class, made when the first one is written."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        self[kind] = _writer(kind)
        return self[kind]


_WRITERS = _Writers({str: encode_basestring, int: int.__repr__, NoneType: lambda _: "null"})


def _writer(kind: type) -> Callable[[Any], str]:
    if is_dataclass(kind) and not hasattr(kind, "DERIVED") and not hasattr(kind, "ID_PREFIX"):
        names = tuple(field.name for field in fields(kind))
        if len(names) >= _FEWEST_FIELDS:
            return _fields_writer(names)
    return lambda value: plain_text(to_json_value(value))


def _fields_writer(names: tuple[str, ...]) -> Callable[[Any], str]:
    template = "{" + ",".join(f"{encode_basestring(name)}:%s" for name in names) + "}"
    values_of = attrgetter(*names)
    instants = [place for place, name in enumerate(names) if name.endswith("_at")]

    def write(owner: Any) -> str:  # noqa: ANN401  # a value of the class
        values = values_of(owner)
        texts = [
            repr(value) if type(value) is float and isfinite(value) else _WRITERS[type(value)](value)
            for value in values
        ]
        for place in instants:
            if isinstance(values[place], int):
                texts[place] = f'"{rfc3339(values[place])}"'
        return template % tuple(texts)

    return write
