"""A new plan against the live fleet: what it adds that no vantage can measure, as far as their samples show. Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from isochrone_wire.model import Outcome, Plan, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The regions of vantages that are there, and the outcomes that any of them recorded lately, by target id."""

    regions: Collection[str] = ()
    outcomes: Mapping[int, Collection[str]] = field(default_factory=dict)


def origin_of(target: Target) -> str:
    """Return the host and port of a target."""
    return urlsplit(target.base_url).netloc


def credential_of(target: Target) -> str:
    """Return the name of a target's credential; empty without one."""
    return target.credential or ""


def related(old: Plan | None, new: Plan) -> tuple[int, ...]:
    """Return the ids of the targets in force that share a host or a credential with a target that is new."""
    added = _added(old, new)
    shared = {of(target) for target in added for of in (origin_of, credential_of)} - {""}
    return tuple(one.id for one in (old.targets if old else ()) if {origin_of(one), credential_of(one)} & shared)


def unfit(old: Plan | None, new: Plan, fleet: Fleet) -> Iterator[str]:
    """Yield a sentence for everything that `new` adds to `old` and that no vantage can measure.

    It yields nothing without a vantage, and nothing about hosts and credentials that the fleet has never probed.
    """
    is_new = bool(new.baseline) and (old is None or old.baseline != new.baseline)
    if is_new and fleet.regions and new.baseline not in fleet.regions:
        there = ", ".join(sorted(fleet.regions))
        yield f"baseline {new.baseline} has no vantage, so that nothing can be compared: there are vantages in {there}"
    for of, is_unfit, what in (
        (credential_of, {Outcome.SKIPPED_NOT_READY}, "no vantage can use credential {}, see `isochrone vantages`"),
        (origin_of, {Outcome.CONNECT_FAILED}, "no vantage can reach {}"),
    ):
        for name in sorted({of(target) for target in _added(old, new)} - {""}):
            seen = {
                outcome
                for target in (old.targets if old else ())
                if of(target) == name
                for outcome in fleet.outcomes.get(target.id, ())
            }
            if seen and seen <= is_unfit:
                yield f"{what.format(name)}: all its probes of the last hour are {', '.join(sorted(seen))}"


def _added(old: Plan | None, new: Plan) -> list[Target]:
    known = {target.id for target in old.targets} if old else set()
    return [target for target in new.targets if target.id not in known and not target.paused]
