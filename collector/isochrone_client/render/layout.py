"""Layout of a table: which columns it has, and how wide they are, so that a line fits the screen.

While a line is too long, names get their shorter texts, then columns are left out by their priority, and in the end
names become narrower than their words. Columns of priority 0 are never left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
_LEAST_NAME = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The widths that a column can have: `natural` is that of its longest text, `least` that of its longest word.

    Only `flexible` columns are folded. `short` is the extent with the shorter texts, if the column has any.
    """

    natural: int
    least: int
    priority: int = 0
    flexible: bool = False
    short: "Extent | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One column of a table: its index, its width, and whether it has its shorter texts."""

    index: int
    width: int
    is_short: bool = False


def arrange(extents: Sequence[Extent], width: int) -> tuple[Place, ...]:
    """The columns that are shown, from left to right."""
    short = [extent.short or extent for extent in extents]
    kept = list(range(len(extents)))
    if _line_width(extents) > width:
        kept = _kept(short, width)
    is_short = _line_width([extents[index] for index in kept]) > width
    chosen = [short[index] if is_short else extents[index] for index in kept]
    return tuple(
        Place(index=index, width=wide, is_short=is_short and extents[index].short is not None)
        for index, wide in zip(kept, _widths(chosen, width), strict=True)
    )


def everything(extents: Sequence[Extent]) -> tuple[Place, ...]:
    """All columns with their natural widths."""
    return tuple(Place(index=index, width=extent.natural) for index, extent in enumerate(extents))


def _line_width(extents: Sequence[Extent]) -> int:
    return sum(extent.least for extent in extents) + GAP * max(len(extents) - 1, 0)


def _kept(extents: Sequence[Extent], width: int) -> list[int]:
    """The indices of the columns that fit; of columns with the same priority the last one is left out first."""
    kept = list(range(len(extents)))
    optional = sorted((index for index in kept if extents[index].priority), key=lambda index: extents[index].priority)
    while optional and _line_width([extents[index] for index in kept]) > width:
        kept.remove(optional.pop())
    return kept


def _widths(extents: Sequence[Extent], width: int) -> list[int]:
    """The widths of columns that share a line: what the words leave is divided by what the columns would like."""
    least = _squeezed(extents, width)
    spare = width - sum(least) - GAP * max(len(least) - 1, 0)
    wishes = [
        max(extent.natural - own, 0) if extent.flexible else 0 for extent, own in zip(extents, least, strict=True)
    ]
    if spare <= 0 or not any(wishes):
        return least
    return [own + min(wish, spare * wish // sum(wishes)) for own, wish in zip(least, wishes, strict=True)]


def _squeezed(extents: Sequence[Extent], width: int) -> list[int]:
    """The least widths, the widest of them reduced until the line fits: of names first, at last of any column."""
    least = [extent.least for extent in extents]
    flexible = [place for place, extent in enumerate(extents) if extent.flexible]
    for places, floor in ((flexible, _LEAST_NAME), (range(len(extents)), 1)):
        while sum(least) + GAP * max(len(least) - 1, 0) > width:
            widest = max(places, key=least.__getitem__, default=None)
            if widest is None or least[widest] <= floor:
                break
            least[widest] -= 1
    return least
