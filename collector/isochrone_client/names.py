"""Short names: what a reader may write for a region or a target, and the one name that it stands for.

us-east       us-east-2              the one region that begins so
kimi-k2.5     moonshot/kimi-k2.5     the one target of that model, or whose name ends in it
kimi          moonshot/kimi-k2.5     the one target whose model begins so

What is exactly a name always means itself, patterns are left to the collector, and what could mean several things is
never guessed at.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from isochrone_client.errors import AmbiguousError
from isochrone_wire.model import Target

_SHOWN = 8
_PATTERN_MARKS = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What there is to be named: the regions ever heard of and the targets of the plan in force."""

    regions: frozenset[str]
    targets: tuple[Target, ...]

    def region(self, text: str) -> str:
        """The region that `text` means, or `text` where none is known by it. Raises `AmbiguousError`."""
        return _meant("region", text, _regions(text, self.regions))

    def target(self, text: str) -> str:
        """The target that `text` means, or `text` where none is known by it. Raises `AmbiguousError`."""
        if _PATTERN_MARKS & set(text):
            return text
        return _meant("target", text, _targets(text, self.targets))


def _meant(kind: str, text: str, candidates: Iterator[set[str]]) -> str:
    """The only one of the first candidates that there are."""
    found = sorted(next(filter(None, candidates), ()))
    if len(found) > 1:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise AmbiguousError(
            f"{text!r} may mean {len(found)} {kind}s: {', '.join(found[:_SHOWN])}{more}",
            hint="write more of the one you mean" + (f", or '*{text}*' for all of them" if kind == "target" else ""),
        )
    return found[0] if found else text


def _regions(text: str, known: Iterable[str]) -> Iterator[set[str]]:
    short = text.lower()
    yield {name for name in known if name == text}
    yield {name for name in known if name.lower() == short}
    yield {name for name in known if short and name.lower().startswith(short)}


def _targets(text: str, known: tuple[Target, ...]) -> Iterator[set[str]]:
    """The names that fit, those that fit best first: the name itself, its model, its last part, its beginning."""
    short = text.lower()
    fits: tuple[Callable[[Target], bool], ...] = (
        lambda target: target.name == text,
        lambda target: short in (target.name.lower(), target.model.lower()),
        lambda target: _last(target.name) == short or _last(target.model) == short,
        lambda target: any(part.startswith(short) for part in _parts(target)),
    )
    for fitting in fits if short else ():
        yield {target.name for target in known if fitting(target)}


def _last(name: str) -> str:
    return name.lower().rpartition("/")[2]


def _parts(target: Target) -> tuple[str, ...]:
    return target.name.lower(), target.model.lower(), _last(target.name), _last(target.model)
