"""Short names of regions and targets, and the full names that they resolve to.

us-east       us-east-2              the only region that starts with it
kimi-k2.5     moonshot/kimi-k2.5     the only target of that model, or whose name ends in it
kimi          moonshot/kimi-k2.5     the only target whose model starts with it

A full name always means itself, patterns are left to the collector, and an ambiguous short name is an error.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isochrone_client.errors import UsageError
from isochrone_wire.text import first_of

if TYPE_CHECKING:
    from isochrone_wire.fleet import TargetList, VantageList
    from isochrone_wire.model import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names that exist: all known regions and the targets of the plan in force."""

    regions: tuple[str, ...]
    targets: "tuple[Target, ...]"

    @classmethod
    def of(cls, plan: "TargetList", fleet: "VantageList") -> "Names":
        """The regions of a plan and a fleet, the baseline first, and the plan's targets."""
        regions = (plan.baseline, *sorted(vantage.region for vantage in fleet.vantages))
        return cls(regions=tuple(dict.fromkeys(filter(None, regions))), targets=plan.targets)

    def region(self, text: str) -> str:
        """The region that `text` stands for, or `text` if there is none. Raises `UsageError`."""
        known, short = self.regions, text.lower()
        matches = (
            {name for name in known if name == text},
            {name for name in known if name.lower() == short},
            {name for name in known if short and name.lower().startswith(short)},
        )
        return _resolve("region", text, matches)

    def target(self, text: str) -> str:
        """The target that `text` stands for, or `text` if there is none. Raises `UsageError`."""
        if {*"*?["} & {*text}:
            return text
        short = text.lower()
        # The best match first: the full name, the model, the last part, the start.
        matches: tuple[Callable[[Target], bool], ...] = (
            lambda target: target.name == text,
            lambda target: short in (target.name.lower(), target.model.lower()),
            lambda target: _last(target.name) == short or _last(target.model) == short,
            lambda target: any(
                part.startswith(short) for name in (target.name, target.model) for part in (name.lower(), _last(name))
            ),
        )
        found = ({target.name for target in self.targets if is_match(target)} for is_match in matches if short)
        return _resolve("target", text, found)

    def expand(self, parameters: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Return the parameters of a request with full names in place of short ones. Raises `UsageError`."""
        expand = dict.fromkeys(("region", "client_region", "baseline", "against"), self.region) | {
            "target": self.target
        }
        return tuple((name, expand[name](text) if name in expand else text) for name, text in parameters)


def _resolve(kind: str, text: str, candidates: Iterable[set[str]]) -> str:
    """The only member of the first non-empty set of candidates, or `text` if all are empty."""
    found = sorted(next(filter(None, candidates), ()))
    if len(found) > 1:
        raise UsageError(
            f"{text!r} matches {len(found)} {kind}s: {first_of(found, 8)}",
            hint="write more of the name" + (f", or '*{text}*' for all of them" if kind == "target" else ""),
        )
    return found[0] if found else text


def _last(name: str) -> str:
    return name.lower().rpartition("/")[2]
