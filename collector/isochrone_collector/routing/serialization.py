"""Serialization as canonical JSON: equal values give equal bytes, for digests and replays."""

import hashlib
import json
import types
import typing
import zlib
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

Value = TypeVar("Value")

_DIGEST_CHARS = 12


def dump(value: object) -> str:
    """Serialize a value as JSON with sorted keys and no spaces."""
    return _ENCODER.encode(value)


def load(cls: type[Value], text: str) -> Value:
    """Parse the JSON of a value of class `cls`; unknown fields are ignored. Raises `ValueError` for anything else."""
    try:
        return typing.cast(Value, _value(cls, json.loads(text)))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid {cls.__name__}: {error}") from error


def compress(text: str) -> bytes:
    """Compress a text."""
    return zlib.compress(text.encode(), 6)


def decompress(content: bytes) -> str:
    """Return the text that was compressed."""
    return zlib.decompress(content).decode()


def digest(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def etag(generation: int, text: str) -> str:
    """Return the entity tag of a table: its generation and the beginning of its digest."""
    return f"g{generation}-{digest(text)[:_DIGEST_CHARS]}"


def _plain(value: Any) -> Any:  # noqa: ANN401  # any value of the wire that JSON does not have
    """Return the fields of a dataclass. The keys of its mappings become text, by which they are sorted."""
    parts = ((name, getattr(value, name)) for name in _hints(value.__class__))
    return {
        name: {str(key): one for key, one in part.items()} if isinstance(part, Mapping) else part
        for name, part in parts
    }


_ENCODER = json.JSONEncoder(
    default=_plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)


@cache
def _hints(cls: type[Any]) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def _value(hint: Any, plain: Any) -> Any:  # noqa: ANN401  # a type hint, and what JSON gives
    arguments = [part for part in typing.get_args(hint) if part is not types.NoneType]
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        return None if plain is None else _value(arguments[0], plain)
    if origin is tuple:
        return tuple(_value(arguments[0], part) for part in plain)
    if origin is Mapping:
        return {arguments[0](key): _value(arguments[1], part) for key, part in plain.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        known = {name: part for name, part in plain.items() if name in hints}
        return typing.cast(Any, hint)(**{name: _value(hints[name], part) for name, part in known.items()})
    return hint(plain) if isinstance(hint, type) and issubclass(hint, StrEnum) else plain
