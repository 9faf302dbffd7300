"""Badges: small SVG images with the status of a target from a region. Pure.

Every value is escaped, and characters that XML does not allow are replaced. An image has no script, no style sheet, no
font and no address of its own.
"""

import hashlib
import html
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from unicodedata import east_asian_width

from isochrone_wire.model import SECOND_US
from isochrone_wire.queries.status import State, TargetStatus
from isochrone_wire.text import shortened

UNKNOWN_VALUE = "\N{EN DASH}"
MAX_LABEL_CHARS = 60

_COLOURS = {State.OK: "#1a7f37", State.SLOW: "#8a5a00", State.FAILING: "#b3202c", State.STALE: "#57606a"}
_NEUTRAL = "#57606a"
# The widths of characters of Verdana at the size of the text: of the usual ones, of capitals, and of others.
_CHAR_PX, _CAPITAL_PX, _EAST_ASIAN_PX, _MARGIN_PX = 6.8, 7.7, 12.0, 6
_WIDTHS_PX = (
    dict.fromkeys("ijl", 3.1)
    | dict.fromkeys("frtI .,:;|!'()[]", 4.4)
    | dict.fromkeys("-/", 5.0)
    | dict.fromkeys("mwMW%@<>=+~", 9.5)
)
# Longer latencies are shown in seconds.
_SECONDS_FROM_US = 10 * SECOND_US
_FONT = "Verdana,DejaVu Sans,Geneva,sans-serif"

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" viewBox="0 0 {width} 20" role="img"
 aria-label="{title}">
<title>{title}</title>
<clipPath id="shape"><rect width="{width}" height="20" rx="3"/></clipPath>
<g clip-path="url(#shape)">
<rect width="{left}" height="20" fill="#333b44"/>
<rect x="{left}" width="{right}" height="20" fill="{colour}"/>
</g>
<g fill="#ffffff" font-family="{font}" font-size="11" aria-hidden="true">
<text x="{margin}" y="14" textLength="{label_px}">{label}</text>
<text x="{value_x}" y="14" textLength="{value_px}">{value}</text>
</g>
</svg>
"""


@dataclass(frozen=True, slots=True)
class Badge:
    """The bytes of an image, and its entity tag."""

    content: bytes
    etag: str


def _state(row: TargetStatus) -> str:
    return row.state.value


def _first_token(row: TargetStatus) -> str:
    if row.ttft_p50_us is None:
        return UNKNOWN_VALUE
    if row.ttft_p50_us >= _SECONDS_FROM_US:
        return f"{row.ttft_p50_us / SECOND_US:.1f} s"
    return f"{row.ttft_p50_us / 1_000:.0f} ms"


def _success(row: TargetStatus) -> str:
    """Round down, so that 100.0 % means all."""
    return UNKNOWN_VALUE if row.success is None else f"{math.floor(1_000 * row.success + 1e-9) / 10:.1f} %"


METRICS: Mapping[str, tuple[str, Callable[[TargetStatus], str]]] = MappingProxyType(
    {"state": ("state", _state), "ttft": ("median first token", _first_token), "success": ("success", _success)}
)
"""What a badge can show: its words in the title, and the text of the value."""


def badge_of(row: TargetStatus, metric: str) -> Badge:
    """Return the badge of a target from a region, with one of `METRICS`; its colour is that of the state."""
    words, text_of = METRICS[metric]
    text = text_of(row)
    told = f"{words} {text}" if metric == "state" else f"{words} {text} in 24 hours, state {row.state.value}"
    return _badge(f"{row.target} {row.region}", text, title=f"{row.target} from {row.region}: {told}", state=row.state)


def unknown_badge() -> Badge:
    """Return the badge of a target or region that is not known. It repeats nothing of the request."""
    return _badge("isochrone", "unknown", title="isochrone: unknown target or region", state=None)


def _badge(label: str, value: str, *, title: str, state: State | None) -> Badge:
    label, value = shortened(_printable(label), MAX_LABEL_CHARS), _printable(value)
    label_px, value_px = _width_px(label), _width_px(value)
    left, right = label_px + 2 * _MARGIN_PX, value_px + 2 * _MARGIN_PX
    content = _SVG.format(
        width=left + right,
        left=left,
        right=right,
        margin=_MARGIN_PX,
        value_x=left + _MARGIN_PX,
        label_px=label_px,
        value_px=value_px,
        label=html.escape(label),
        value=html.escape(value),
        title=html.escape(_printable(title)),
        colour=_NEUTRAL if state is None else _COLOURS[state],
        font=_FONT,
    ).encode()
    return Badge(content, hashlib.sha256(content).hexdigest()[:20])


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _width_px(text: str) -> int:
    """Return the width of a text in the usual fonts; the image stretches other fonts to it."""
    return math.ceil(sum(map(_char_px, text)))


def _char_px(char: str) -> float:
    if east_asian_width(char) in "WF":
        return _EAST_ASIAN_PX
    return _WIDTHS_PX.get(char, _CAPITAL_PX if char.isupper() else _CHAR_PX)
