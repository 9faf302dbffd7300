"""Names: what a reader calls a thing, and what they may have meant when there is no such thing."""

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from isochrone_wire.text import did_you_mean

_SHOWN = 20
_SUFFIX_BITS = 24
_SPECIAL = frozenset("*?[")


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """One sentence on a name that is not there: what is, and which of it was perhaps meant."""
    shown = sorted(known)[:_SHOWN]
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    listing = f"{', '.join(shown)}{more}" if shown else "none yet"
    return f"unknown {kind} {name!r}; known: {listing}{did_you_mean(name, known)}"


def matching(pattern: str, known: Iterable[str]) -> list[str]:
    """The known names that a shell-style pattern matches, in their order.

    `*`, `?` and `[…]` are special, capitals are told apart, and a name always matches itself. A pattern with any of
    these and without a slash is of what comes after the provider too: `kimi*` matches `moonshot/kimi-k2.5`.
    """
    of_models = "/" not in pattern and bool(_SPECIAL & set(pattern))
    return [
        name
        for name in known
        if name == pattern or fnmatchcase(name, pattern) or (of_models and fnmatchcase(name.partition("/")[2], pattern))
    ]


def display_names(targets: Mapping[int, tuple[str, int]]) -> dict[int, str]:
    """A distinct name for every target ever planned, from id → (name, last plan version that held it).

    A target whose workload or endpoint changes is another series under the same name. The newest keeps the bare name;
    the others are called `name~` and the last six hexadecimal digits of their id.
    """
    holder: dict[str, tuple[int, int]] = {}
    for target_id, (name, version) in targets.items():
        holder[name] = max(holder.get(name, (0, 0)), (version, target_id))
    return {
        target_id: name if holder[name][1] == target_id else f"{name}~{target_id % 2**_SUFFIX_BITS:06x}"
        for target_id, (name, _) in targets.items()
    }
