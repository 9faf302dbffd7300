"""Short names of regions and targets, and the full names that they resolve to.

us-east       us-east-2              the only region that starts with it
kimi-k2.5     moonshot/kimi-k2.5     the only target of that model, or whose name ends in it
kimi          moonshot/kimi-k2.5     the only target whose model starts with it

A full name always means itself, patterns are left to the collector, and an ambiguous short name is an error.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isochrone_client.errors import AmbiguousError
from isochrone_wire.text import first_of

if TYPE_CHECKING:
    from isochrone_wire.model import Target

_MAX_LISTED = 8
_PATTERN_MARKS = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names that exist: all known regions and the targets of the plan in force."""

    regions: tuple[str, ...]
    targets: "tuple[Target, ...]"

    def region(self, text: str) -> str:
        """The region that `text` stands for, or `text` if there is none. Raises `AmbiguousError`."""
        return _resolve("region", text, _regions(text, self.regions))

    def target(self, text: str) -> str:
        """The target that `text` stands for, or `text` if there is none. Raises `AmbiguousError`."""
        if _PATTERN_MARKS & set(text):
            return text
        return _resolve("target", text, _targets(text, self.targets))

    def expand(self, parameters: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Return the parameters of a request with full names in place of short ones. Raises `AmbiguousError`."""
        expand = dict.fromkeys(("region", "client_region", "baseline", "against"), self.region) | {
            "target": self.target
        }
        return tuple((name, expand[name](text) if name in expand else text) for name, text in parameters)


def _resolve(kind: str, text: str, candidates: Iterator[set[str]]) -> str:
    """The only member of the first non-empty set of candidates, or `text` if all are empty."""
    found = sorted(next(filter(None, candidates), ()))
    if len(found) > 1:
        raise AmbiguousError(
            f"{text!r} matches {len(found)} {kind}s: {first_of(found, _MAX_LISTED)}",
            hint="write more of the name" + (f", or '*{text}*' for all of them" if kind == "target" else ""),
        )
    return found[0] if found else text


def _regions(text: str, known: Iterable[str]) -> Iterator[set[str]]:
    short = text.lower()
    yield {name for name in known if name == text}
    yield {name for name in known if name.lower() == short}
    yield {name for name in known if short and name.lower().startswith(short)}


def _targets(text: str, known: "tuple[Target, ...]") -> Iterator[set[str]]:
    """Sets of matching names, best match first: the full name, the model, the last part, the start."""
    short = text.lower()
    matches: tuple[Callable[[Target], bool], ...] = (
        lambda target: target.name == text,
        lambda target: short in (target.name.lower(), target.model.lower()),
        lambda target: _last(target.name) == short or _last(target.model) == short,
        lambda target: any(
            part.startswith(short) for name in (target.name, target.model) for part in (name.lower(), _last(name))
        ),
    )
    for is_match in matches if short else ():
        yield {target.name for target in known if is_match(target)}


def _last(name: str) -> str:
    return name.lower().rpartition("/")[2]
