"""Hand-written inputs of a routing decision."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan

from isochrone_collector.analysis.histogram import buckets_of
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs, JointRounds, Rules
from isochrone_wire.answers import Quantile, Window
from isochrone_wire.model import Price, Route, Target

RULES = Rules()
AT = 1_800_000_000_000_000 // RULES.epoch_us * RULES.epoch_us


def target_named(name: str, *, usd: float | None = None, region: str | None = None, paused: bool = False) -> Target:
    """Return a target as described in the plan; `usd` per million output tokens."""
    price = None if usd is None else Price(usd_per_m_output=usd)
    return Target(
        id=ord(name[0]),
        name=name,
        provider=name,
        model="m",
        base_url=f"http://{name}",
        price=price,
        region=region,
        paused=paused,
    )


def evidence(
    name: str,
    p50_ms: float,
    *,
    p95_ms: tuple[float, float] | None = None,
    ok: int = 100,
    n: int = 100,
    newest_at: int = AT,
) -> Evidence:
    """Return the evidence on a member of which `ok` of `n` probes succeeded; its p95 is between two bounds, by default
    twice its p50.
    """
    low, high = p95_ms or (p50_ms * 2, p50_ms * 2)
    return Evidence(
        target=name,
        n=ok,
        n_eff=float(ok),
        vantages=2,
        ttft_p50_us=Quantile(value=p50_ms * 1e3),
        ttft_p95_us=Quantile(value=(low + high) / 2 * 1e3, low=low * 1e3, high=high * 1e3),
        success=wilson(ok, n),
        outcomes={"ok": ok, "failed": n - ok},
        newest_at=newest_at,
        histogram={int(buckets_of([p50_ms * 1e3])[0]): ok},
    )


def shift(low_ms: float, high_ms: float) -> Shift:
    """Return a shift in the middle of its interval."""
    return Shift(estimate=(low_ms + high_ms) / 2 * 1e3, low=low_ms * 1e3, high=high_ms * 1e3)


def comparison(
    left: str, right: str, low_ms: float, high_ms: float, *, short: tuple[float, float] | None = None
) -> Comparison:
    """Return the comparison in which `left` takes longer than `right` by this interval."""
    found = shift(low_ms, high_ms)
    return Comparison(
        left=left, right=right, n=100, window=found, middle=found, short=None if short is None else shift(*short)
    )


def joint_rounds(every_us: int = RULES.epoch_us // 6, /, **ttft_ms: Sequence[float]) -> JointRounds:
    """Return rounds that end at `AT`, one every `every_us`, with the TTFTs of each member in milliseconds, oldest
    first; NaN without one.
    """
    count = max(map(len, ttft_ms.values()), default=0)
    return JointRounds(
        round_at=tuple(AT - (count - 1 - place) * every_us for place in range(count)),
        ttft={
            name: tuple(None if isnan(ms) else int(buckets_of([ms * 1e3])[0]) for ms in column)
            for name, column in ttft_ms.items()
        },
    )


def inputs_for(
    *known: Evidence,
    compared: tuple[Comparison, ...] = (),
    route: Route | None = None,
    targets: Mapping[str, Target] | None = None,
    at: int = AT,
    joint: JointRounds | None = None,
) -> Inputs:
    """Return the inputs of a decision over these members."""
    names = tuple(one.target for one in known)
    return Inputs(
        at=at,
        client_region="eu",
        route=replace(route, members=names) if route else Route(name="r", members=names),
        plan_version=1,
        window=Window(from_at=at - RULES.window_us, until_at=at),
        rules=RULES,
        targets=tuple((targets or {}).get(name) or target_named(name) for name in names),
        evidence=known,
        comparisons=compared,
        vantages=4,
        suspects=0,
        vantages_here=2,
        joint=joint or JointRounds(),
    )
