"""Conversion of value classes to protobuf messages and back.

The laws:

1. A value's field and the message's field of the same name carry the same quantity in the same unit.
2. `decode(type(v), encode(v)) == v` for every value v (tests/unit/wire/test_codec.py).
3. A message that cannot be decoded, for example with an unknown outcome, raises `CodecError` with the
   name of the field, and never another exception.

Theory of operation: the type hints of a value class select one pair of converters per field when the class is first
used. Only this module and the gRPC servicers and stubs handle messages.
"""

import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import IntFlag, StrEnum
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from typing import Any, TypeVar

from google.protobuf.message import Message

from isochrone_wire.v1 import plan_pb2, sample_pb2

Value = TypeVar("Value")

# Imported when they are needed: a command needs only those of its answer.
_MESSAGE_MODULES = tuple(f"isochrone_wire.v1.{name}_pb2" for name in ("plan", "sample", "fleet", "operations"))


@cache
def message_class(cls: type) -> type[Message]:
    """Return the message of a value class, which has its name. Raises `KeyError` for a class without one."""
    # A caller of the service has imported its messages.
    modules = map(import_module, sorted(_MESSAGE_MODULES, key=lambda module: module not in sys.modules))
    found: type[Message] | None = next(filter(None, (getattr(one, cls.__name__, None) for one in modules)), None)
    if found is None:
        raise KeyError(cls)
    return found


class CodecError(ValueError):
    """A message that this version cannot decode. Action: fix the sender, or upgrade this side."""


@dataclass(frozen=True, slots=True)
class _Converter:
    """Conversion of one field: `encode` to the message, `decode` from it. `optional` fields may be absent."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class _ClassCodec:
    """Conversion of a value class: fields without an encoder or decoder are copied, `optional` ones may be absent."""

    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    encoders: tuple[tuple[str, Callable[[Any], Any]], ...]
    decoders: tuple[tuple[str, Callable[[Any], Any]], ...]
    optional: tuple[str, ...]


def encode(value: Any) -> Any:  # noqa: ANN401  # the message class follows from the value's class; see message_class
    """Return the message for a value: `sample_pb2.Sample` for a `Sample`. Raises `KeyError` for other classes."""
    kind: Any = type(value)
    return message_class(kind)(**_content(value))


def decode(cls: type[Value], message: Message) -> Value:
    """Return the value of class `cls` in `message`. Raises `CodecError`."""
    kind: Any = cls
    class_codec = _class_codec(kind)
    content = dict(zip(class_codec.names, class_codec.read(message), strict=True))
    for name in class_codec.optional:
        if not message.HasField(name):
            content[name] = None
    for name, decode_field in class_codec.decoders:
        part = content[name]
        if part is not None:
            try:
                content[name] = decode_field(part)
            except (LookupError, ValueError) as error:
                raise CodecError(f"{message.DESCRIPTOR.name}.{name}: {error}") from error
    return cls(**content)


def _content(value: Any) -> dict[str, Any]:  # noqa: ANN401  # of any value class
    """Return the arguments of a value's message; nested ones as dictionaries, because protobuf would copy messages."""
    kind: Any = type(value)
    class_codec = _class_codec(kind)
    content = dict(zip(class_codec.names, class_codec.read(value), strict=True))
    for name, encode_field in class_codec.encoders:
        part = content[name]
        if part is not None:
            content[name] = encode_field(part)
    return content


@cache
def _class_codec(cls: Any) -> _ClassCodec:  # noqa: ANN401  # a value class; mypy has no name for those
    hints = typing.get_type_hints(cls)
    converters = {field.name: _converter(hints[field.name]) for field in fields(cls)}
    names = tuple(converters)
    # With a single name, attrgetter does not return a tuple.
    read = attrgetter(*names) if len(names) > 1 else lambda owner: (getattr(owner, names[0]),)
    return _ClassCodec(
        names=names,
        read=read,
        encoders=tuple((name, one.encode) for name, one in converters.items() if one.encode is not _unchanged),
        decoders=tuple((name, one.decode) for name, one in converters.items() if one.decode is not _unchanged),
        optional=tuple(name for name, one in converters.items() if one.optional),
    )


def _converter(hint: Any) -> _Converter:  # noqa: ANN401  # a type hint has no narrower type
    arguments = [part for part in typing.get_args(hint) if part is not types.NoneType]
    origin = typing.get_origin(hint)
    if origin is Mapping:
        return _Converter(dict, dict)
    if origin is None:
        return _plain_converter(hint)
    inner = _converter(arguments[0])
    if origin is tuple:
        return _Converter(
            lambda parts: [inner.encode(p) for p in parts], lambda parts: tuple(inner.decode(p) for p in parts)
        )
    # Enum fields have no presence: 0 (UNSPECIFIED) stands for absent, and HasField must not be called.
    if isinstance(arguments[0], type) and issubclass(arguments[0], StrEnum):
        return _Converter(inner.encode, lambda number: inner.decode(number) if number else None)
    return _Converter(inner.encode, inner.decode, optional=True)


def _plain_converter(cls: type) -> _Converter:
    if is_dataclass(cls):
        return _Converter(_content, partial(decode, cls))
    if issubclass(cls, IntFlag):
        return _Converter(int, cls)
    if not issubclass(cls, StrEnum):
        return _Converter(_unchanged, _unchanged)
    numbers: Any = getattr(sample_pb2, cls.__name__, None) or getattr(plan_pb2, cls.__name__, None)
    if numbers is None:
        return _Converter(str, cls)
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()
    number_of = {member: numbers.Value(f"{prefix}_{member.name}") for member in cls}
    member_of = {number: member for member, number in number_of.items()}
    return _Converter(number_of.__getitem__, member_of.__getitem__)


def _unchanged(part: Any) -> Any:  # noqa: ANN401  # any type, returned as it is
    return part
