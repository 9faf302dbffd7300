"""How traffic is split, and how fast that may change."""

from collections.abc import Collection, Mapping, Sequence
from math import fsum

_UNITS = 1_000_000


def split(sharing: Sequence[str]) -> dict[str, float]:
    """Equal parts for all who share the first rank."""
    return whole(dict.fromkeys(sharing, 1.0))


def ramped(before: Mapping[str, float], wanted: Mapping[str, float], *, step: float) -> dict[str, float]:
    """From `before` towards `wanted`, moving no member by more than `step`; the weights add up to 1.

    What may not be given to one yet stays with those who had it, in proportion. Whoever has nothing left is not told.
    """
    if not before:
        return dict(wanted)
    gaps = {target: wanted.get(target, 0.0) - before.get(target, 0.0) for target in sorted({*before, *wanted})}
    widest = max((abs(gap) for gap in gaps.values()), default=0.0)
    share = 1.0 if widest <= step else step / widest
    return whole({target: before.get(target, 0.0) + gap * share for target, gap in gaps.items()})


def without(weights: Mapping[str, float], gone: Collection[str], heir: str) -> dict[str, float]:
    """The weights with what belonged to those who are gone given to `heir`."""
    kept = {target: weight for target, weight in weights.items() if target not in gone}
    lost = fsum(weight for target, weight in weights.items() if target in gone)
    return whole({**kept, heir: kept.get(heir, 0.0) + lost})


def whole(parts: Mapping[str, float]) -> dict[str, float]:
    """Parts as shares in millionths that add up to 1, by name; what rounding leaves goes to the largest."""
    # In one order: the last bit of a sum depends on it, and the same decision has to give the same bytes anywhere.
    total = fsum(parts.values())
    units = {target: round(_UNITS * part / total) for target, part in sorted(parts.items()) if part > 0}
    if units:
        largest = max(units, key=lambda target: units[target])
        units[largest] += _UNITS - sum(units.values())
    return {target: unit / _UNITS for target, unit in units.items() if unit}
