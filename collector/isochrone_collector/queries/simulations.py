import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from isochrone_collector.analysis import simulation
from isochrone_collector.errors import BadRequest
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve
from isochrone_collector.store import vantages
from isochrone_collector.store.probe_queries import sent_probes
from isochrone_wire.answers import Selection
from isochrone_wire.insights import Simulation, SimulationList

_MAX_PROBES = 1_000_000
_MAX_POLICIES = 50
_FEWEST_MEMBERS = 2
_NOT_JOINT = (
    "not replayed, as its members are not probed in the same rounds and common stalls would not show: "
    "make them members of one route"
)


async def simulations(context: QueryContext, selection: Selection, *, policies: Sequence[str]) -> SimulationList:
    """Return one line per region and policy, none without samples of two members. Raises `BadRequest`."""
    if len(policies) > _MAX_POLICIES:
        raise BadRequest(f"{len(policies)} policies; the maximum is {_MAX_POLICIES}")
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        if selection.targets and len(resolved.targets) < _FEWEST_MEMBERS:
            only = ", ".join(resolved.names[target_id] for target_id in resolved.targets)
            raise BadRequest(f"a simulation needs at least two interchangeable targets; only {only} is selected")
        sent = await sent_probes(connection, resolved.scope, most=_MAX_PROBES)
        region_of = {row.id: row.region for row in await vantages.vantages(connection)}
    planned = {target.id for target in context.targets().targets}
    members = _members(sent, resolved, None if selection.targets else planned)
    if len(members) < _FEWEST_MEMBERS:
        return SimulationList(window=selection.window, members=tuple(members.values()))
    slot_us = max(resolved.targets[member].every_us for member in members)
    names = tuple(members.values())

    def played() -> tuple[Simulation, ...]:
        # An invalid policy is refused before anything is computed.
        texts = tuple(policies) or simulation.DEFAULTS
        asked = [simulation.policy(text, names) for text in texts]
        joint = simulation.find_shared_rounds(sent, tuple(members), region_of)
        is_joint = bool(_usable(joint))
        found = joint if is_joint else simulation.find_shared_rounds(sent, tuple(members), region_of, slot_us=slot_us)
        usable = _usable(found)
        ready = simulation.policy_inputs([vantage.recorded for vantage in usable]) if usable else []
        if ready:
            asked = [simulation.policy(text, names, best=ready[0].best) for text in texts]
        return tuple(_lines(found, names, ready, asked, is_joint=is_joint))

    try:
        lines = await asyncio.to_thread(played)
    except simulation.PolicyError as error:
        raise BadRequest(str(error)) from error
    return SimulationList(window=selection.window, members=names, simulations=lines)


def _members(sent: simulation.SentProbes, resolved: ResolvedSelection, among: set[int] | None) -> dict[int, str]:
    found = [int(target_id) for target_id in np.unique(sent.target_id)]
    names = {target_id: resolved.names[target_id] for target_id in found if among is None or target_id in among}
    return dict(sorted(names.items(), key=lambda item: item[1]))


def _usable(found: Sequence[simulation.SharedRounds]) -> list[simulation.SharedRounds]:
    return [vantage for vantage in found if len(vantage.recorded) > vantage.recorded.learning]


def _note(vantages: Sequence[simulation.SharedRounds], names: Sequence[str], *, enough: bool) -> str:
    absent = sorted({names[column] for vantage in vantages for column in vantage.absent})
    if not enough:
        there = sum(len(vantage.recorded) for vantage in vantages)
        why = (
            f"{', '.join(absent)} was never probed there"
            if absent
            else f"{there} shared rounds are too few to learn from"
        )
        return f"nothing to replay: {why}"
    learning = sum(vantage.recorded.learning for vantage in vantages)
    left_out = sum(vantage.left_out for vantage in vantages)
    skipped = f"; {left_out} rounds without a sample of every member were left out" if left_out else ""
    return f"the first {learning} rounds were only learnt from{skipped}"


def _lines(
    found: Sequence[simulation.SharedRounds],
    names: Sequence[str],
    ready: Sequence[simulation.PolicyInput],
    asked: Sequence[simulation.Policy],
    *,
    is_joint: bool,
) -> Iterator[Simulation]:
    ordered = sorted(found, key=lambda vantage: vantage.recorded.region)
    for region, group in groupby(ordered, key=lambda vantage: vantage.recorded.region):
        inputs = [given for given in ready if given.recorded.region == region]
        note = _note(list(group), names, enough=bool(inputs))
        for one in asked:
            if not inputs or (one.several and not is_joint):
                refused = f"{note}; {_NOT_JOINT}" if inputs else note
                yield Simulation(policy=one.name, region=region, rounds=0, requests=0, note=refused)
                continue
            replay = simulation.pooled([one.play(given) for given in inputs])
            yield Simulation(
                policy=one.name,
                region=region,
                rounds=replay.ttft.n,
                requests=replay.requests,
                failed=replay.ttft.n - replay.ttft.known,
                switches=replay.switches,
                ttft_p50_us=replay.ttft.quantile(0.5),
                ttft_p95_us=replay.ttft.quantile(0.95),
                usd=None if np.isnan(replay.usd) else replay.usd,
                note="; ".join(filter(None, (note, one.note))),
            )
