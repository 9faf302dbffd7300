"""Values as bytes that are always the same for the same value, and back: what digests and replays are made of."""

import hashlib
import json
import types
import typing
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

Value = TypeVar("Value")

_DIGEST_CHARS = 12


def dump(value: object) -> str:
    """A value as JSON with sorted keys and no spaces."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def load(cls: type[Value], text: str) -> Value:
    """The value of class `cls` that `written` wrote, without what only a later version knows of. Raises `ValueError`
    for anything else.
    """
    try:
        return typing.cast(Value, _value(cls, json.loads(text)))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no {cls.__name__}: {error}") from error


def compress(text: str) -> bytes:
    """A text, compressed."""
    return zlib.compress(text.encode(), 6)


def decompress(content: bytes) -> str:
    """The text again."""
    return zlib.decompress(content).decode()


def digest(text: str) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def etag(generation: int, text: str) -> str:
    """The tag of a table: its number and the beginning of its digest."""
    return f"g{generation}-{digest(text)[:_DIGEST_CHARS]}"


def _plain(value: Any) -> Any:  # noqa: ANN401  # any value of the wire, nested
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value


def _value(hint: Any, plain: Any) -> Any:  # noqa: ANN401  # a type hint, and what JSON gives
    arguments = [part for part in typing.get_args(hint) if part is not types.NoneType]
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        return None if plain is None else _value(arguments[0], plain)
    if origin is tuple:
        return tuple(_value(arguments[0], part) for part in plain)
    if origin is Mapping:
        return {arguments[0](key): _value(arguments[1], part) for key, part in plain.items()}
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        known = {name: part for name, part in plain.items() if name in hints}
        return typing.cast(Any, hint)(**{name: _value(hints[name], part) for name, part in known.items()})
    return hint(plain) if isinstance(hint, type) and issubclass(hint, StrEnum) else plain
