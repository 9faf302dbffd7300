"""The position of a sample in the order of all samples, which is its key, and the public form of this key."""

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

_PREFIX = "sample_"
_KEY = struct.Struct(">qqqqqi")
_PADDING = "="


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a sample, oldest round first; the default is the start of a round."""

    round_at: int
    target_id: int = 0
    vantage_id: int = 0
    epoch: int = 0
    seq: int = 0
    idx: int = 0


NAMES = tuple(part.name for part in fields(Position))


def position_of(record: Mapping[str, Any]) -> Position:
    """Return the position of a record."""
    return Position(**{name: record[name] for name in NAMES})


def sample_name(record: Mapping[str, Any]) -> str:
    """Return the public form of the key of a record."""
    key = _KEY.pack(*(record[name] for name in NAMES))
    return _PREFIX + base64.urlsafe_b64encode(key).decode().rstrip(_PADDING)


def parse_sample_name(text: str) -> Position | None:
    """Return the position with this public form; `None` if it is not one."""
    encoded = text.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(encoded + _PADDING * (-len(encoded) % 4), altchars=b"-_", validate=True)
        found = Position(**dict(zip(NAMES, _KEY.unpack(key), strict=True)))
    except (binascii.Error, struct.error, ValueError):
        return None
    return found if text == sample_name(dict(zip(NAMES, astuple(found), strict=True))) else None
