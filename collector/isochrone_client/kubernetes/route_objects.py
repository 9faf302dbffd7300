"""The weights and priorities of route objects by the tables of a region. Pure.

1. An object has its route in a label, and the target of each backend in an annotation. A rule with a backend without a
   target is left as it is, and reported: its shares would mean something else.
2. Only weights and priorities change, and nothing is applied if they are as they should be.
3. `spec.rules` is a list without keys in both APIs, which a field manager owns as a whole: the patch repeats the live
   rules, and requires the version of the object from which they were read.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from isochrone_common.route_consumer import priority_groups
from isochrone_wire.routes import RouteTable

ROUTE_LABEL = "isochrone/route"
TARGETS_ANNOTATION = "isochrone/targets"
GENERATION_ANNOTATION = "isochrone/generation"

TOTAL_WEIGHT = 1000
_PAIR = re.compile(r"([^\s,=]+)=([^\s,=]+)")

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of route object; `has_priorities` if its backends have priorities beside weights."""

    api_version: str
    kind: str
    plural: str
    has_priorities: bool


HTTP_ROUTE = Kind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes", has_priorities=False)
AI_GATEWAY_ROUTE = Kind("aigateway.envoyproxy.io/v1alpha1", "AIGatewayRoute", "aigatewayroutes", has_priorities=True)
KINDS = (HTTP_ROUTE, AI_GATEWAY_ROUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The patch of an object, `None` if it follows its table already, and a sentence for each rule that cannot."""

    patch: Object | None = None
    problems: tuple[str, ...] = ()


def change_of(kind: Kind, live: Object, tables: Mapping[str, RouteTable]) -> Change:
    """The change that makes an object follow its table; `tables` is by route."""
    metadata = live["metadata"]
    name, route = f"{kind.kind} {metadata['name']}", metadata.get("labels", {}).get(ROUTE_LABEL, "")
    table = tables.get(route)
    if table is None:
        known = ", ".join(sorted(tables))
        return Change(problems=(f"{name}: the route {route!r} has no table; known: {known}",))
    targets = dict(_PAIR.findall(metadata.get("annotations", {}).get(TARGETS_ANNOTATION, "")))
    if not targets:
        missing = f"{name}: the annotation {TARGETS_ANNOTATION} is missing; write BACKEND=PROVIDER/MODEL, …"
        return Change(problems=(missing,))
    rules = deepcopy(live["spec"].get("rules", []))
    problems = tuple(f"{name}, rule {number}: {problem}" for number, problem in _follow(kind, rules, targets, table))
    if rules == live["spec"].get("rules", []):
        return Change(problems=problems)
    patch = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            **{key: metadata[key] for key in ("name", "namespace", "resourceVersion")},
            "annotations": {GENERATION_ANNOTATION: str(table.generation)},
        },
        "spec": {"rules": rules},
    }
    return Change(patch=patch, problems=problems)


def _follow(
    kind: Kind, rules: list[Object], targets: Mapping[str, str], table: RouteTable
) -> Iterator[tuple[int, str]]:
    """Change the rules; yield the number (from 1) of each that cannot follow, with the reason."""
    for number, rule in enumerate(rules, start=1):
        backends = rule.get("backendRefs", [])
        unknown = [backend["name"] for backend in backends if backend["name"] not in targets]
        if unknown:
            yield number, f"the backend {unknown[0]} has no target in {TARGETS_ANNOTATION}"
            continue
        shares = _shares(table, {targets[backend["name"]] for backend in backends})
        if backends and not shares:
            yield number, f"no backend is a member of the table of {table.route}"
            continue
        for backend in backends:
            weight, priority = shares.get(targets[backend["name"]], (0, None))
            backend["weight"] = weight if kind.has_priorities or not priority else 0
            if kind.has_priorities and priority is not None:
                backend["priority"] = priority


def _shares(table: RouteTable, targets: set[str]) -> dict[str, tuple[int, int]]:
    """Weight and priority of the members among `targets`: those with a weight share priority 0, the others follow."""
    members = tuple(entry for entry in table.entries if entry.target in targets)
    groups = priority_groups(replace(table, entries=members))
    if not groups:
        return {}
    first, *others = groups
    whole = sum(entry.weight for entry in first) or 1.0
    weights = [max(1, round(TOTAL_WEIGHT * (entry.weight or 1.0) / whole)) for entry in first]
    shares = {entry.target: (weight, 0) for entry, weight in zip(first, weights, strict=True)}
    return shares | {entry.target: (TOTAL_WEIGHT, priority) for priority, (entry,) in enumerate(others, start=1)}
