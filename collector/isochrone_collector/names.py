from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

_SUFFIX_BITS = 24
_SPECIAL = frozenset("*?[")


def matching(pattern: str, known: Iterable[str]) -> list[str]:
    """Return the known names that a shell-style pattern matches, in their order.

    `*`, `?` and `[…]` are special, matching is case-sensitive, and a name always matches itself. A pattern with special
    characters and without a slash also matches the part after the provider: `kimi*` matches `moonshot/kimi-k2.5`.
    """
    of_models = "/" not in pattern and bool(_SPECIAL & set(pattern))
    return [
        name
        for name in known
        if name == pattern or fnmatchcase(name, pattern) or (of_models and fnmatchcase(name.partition("/")[2], pattern))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFilter:
    """All names, or those that a pattern of `allowed` matches, except those that a pattern of `denied` matches."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()

    def select(self, known: Iterable[str]) -> frozenset[str]:
        """Return the known names that pass."""
        names = list(known)
        allowed = _matched(self.allowed, names) if self.allowed else frozenset(names)
        return allowed - _matched(self.denied, names)


EVERY_NAME = NameFilter()
"""All names pass."""


def _matched(patterns: Iterable[str], names: list[str]) -> frozenset[str]:
    return frozenset(name for pattern in patterns for name in matching(pattern, names))


def display_names(targets: Mapping[int, tuple[str, int]]) -> dict[int, str]:
    """Return a distinct name for every target ever planned, from id → (name, last plan version with it).

    A target whose workload or endpoint changes is another series with the same name. The newest keeps the plain name;
    the others are named `name~` and the last six hexadecimal digits of their id.
    """
    holder: dict[str, tuple[int, int]] = {}
    for target_id, (name, version) in targets.items():
        holder[name] = max(holder.get(name, (0, 0)), (version, target_id))
    return {
        target_id: name if holder[name][1] == target_id else f"{name}~{target_id % 2**_SUFFIX_BITS:06x}"
        for target_id, (name, _) in targets.items()
    }
