"""Decomposition of a difference into phases: Δttft_cold = Δdns + Δtcp + Δtls + Δrtt + Δserver.

Connection setup is dns, tcp and tls. Of the time from the request to the first token, one rtt is the network's and the
rest the server's (server = ttft - rtt). If the provider reports its own time, that of the server is divided once more:
`provider` is the reported time, and `edge` the rest, server = edge + provider: what lies between the address that was
dialled and the model. Only rounds in which both sides know every phase count, and for these two those in which both
sides have a report.

In each round, and so for means, the parts add up to the whole exactly. Each part is reported as its own Hodges-Lehmann
shift, as robust as the whole and with its own interval; these shifts add up approximately, not exactly.

The rtt is the kernel's for this connection and ends at the address that was dialled, often an edge near the agent: the
path from there to the model counts as the server's. Reused connections have no setup phases; their parts are those of
ttft.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.differential.estimation import medians
from isochrone_collector.analysis.differential.panel import Changes, TargetRegion, build_panel, pair_up
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals
from isochrone_collector.analysis.stats.shifts import paired_shifts
from isochrone_wire.answers import Part

_CONNECTING = ("dns", "tcp", "tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """One row per probe with a first token: microseconds, NaN if unknown, and an index into `regions`."""

    regions: tuple[str, ...]
    target_id: Integers
    region: Integers
    round_at: Integers
    dns: Reals
    tcp: Reals
    tls: Reals
    rtt: Reals
    ttft: Reals
    provider: Reals


def parts(
    phases: Phases, wanted: Sequence[TargetRegion], *, baseline: str, changes: Changes
) -> Mapping[TargetRegion, tuple[Part, ...]]:
    """Return the parts of each wanted target and region against the baseline, in the order of a request."""
    columns = _columns(phases)
    found: dict[TargetRegion, list[Part]] = {key: [] for key in wanted}
    for name, column in columns.items():
        for key, part in _shifts(phases, column, wanted, name=name, baseline=baseline, changes=changes):
            found[key].append(part)
    return {key: tuple(own) for key, own in found.items()}


def _columns(phases: Phases) -> dict[str, Reals]:
    """Return each phase of the probes that count, else NaN. A phase that a connection skips (dns, tls) is 0."""
    connected = ~np.isnan(phases.dns) | ~np.isnan(phases.tcp) | ~np.isnan(phases.tls)
    complete = ~np.isnan(phases.rtt) & ~np.isnan(phases.ttft)
    cold = _mostly(phases.target_id, connected, complete)
    counted = complete & (connected == cold)
    setup = {name: np.where(connected, np.nan_to_num(getattr(phases, name)), np.nan) for name in _CONNECTING}
    # A phase that a target never has is left out.
    setup = {
        name: np.where(np.isin(phases.target_id, phases.target_id[column > 0]), column, np.nan)
        for name, column in setup.items()
    }
    server = phases.ttft - phases.rtt
    edge = server - phases.provider
    # A provider that mostly reports more than the server's part reports something else.
    edge = np.where(_mostly(phases.target_id, edge >= 0, complete & ~np.isnan(edge)), edge, np.nan)
    whole = {"rtt": phases.rtt, "server": server, "edge": edge, "provider": phases.provider}
    return {name: np.where(counted, column, np.nan) for name, column in (setup | whole).items()}


def _mostly(target_id: Integers, flags: Flags, among: Flags) -> Flags:
    """Return, for each probe, whether at least half of its target's probes in `among` are flagged."""
    target_ids, target = np.unique(target_id, return_inverse=True)
    flagged, counted = (np.bincount(target[kept], minlength=len(target_ids)) for kept in (among & flags, among))
    return np.asarray((2 * flagged >= counted)[target])


def _shifts(
    phases: Phases, column: Reals, wanted: Sequence[TargetRegion], *, name: str, baseline: str, changes: Changes
) -> Iterator[tuple[TargetRegion, Part]]:
    """Yield the part `name` of each target and region that has it."""
    n = len(column)
    probes = Probes(
        regions=phases.regions,
        target_id=phases.target_id,
        region=phases.region,
        vantage_id=np.zeros(n, dtype=np.int64),
        round_at=phases.round_at,
        kind=np.full(n, Kind.OK, dtype=np.int8),
        value=column,
        censored=np.zeros(n, dtype=bool),
        network=np.full(n, np.nan),
    )
    panel = build_panel(probes)
    pairs = pair_up(panel, wanted, baseline=baseline, changes=changes)
    base, other = panel.value[pairs.baseline], panel.value[pairs.region]
    rows = pairs.rows(other - base)
    columns = (rows.counts, medians(pairs.rows(base)), medians(pairs.rows(other)))
    for one, shift, *figures in zip(
        wanted, paired_shifts(rows).listed(), *(one.tolist() for one in columns), strict=True
    ):
        if shift:
            named = dict(zip(("n", "baseline_median", "region_median"), figures, strict=True))
            yield one, Part(name=name, shift=shift.estimate, low=shift.low, high=shift.high, **named)
