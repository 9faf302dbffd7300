"""The findings of `status`, derived from incidents, differences, drift and the fleet's state. Pure; instants are
microseconds of the collector's clock.

The laws:

1. An open incident is critical; one that is silenced or acknowledged is a warning.
2. A target is slower from a region if the difference from the baseline has a step for the worse, or drift detection
   found a lasting change for the worse, and it has not returned. If the difference of two regions has a step, the
   region whose own median rose is slower. The level before is the one that lasted longest.
3. A vantage is absent as in `conditions`, or sends no samples. If none delivers, that is critical. It is busy if most
   of its newest probes are not compared.
4. A target without requests is a finding of its own, unless an absent vantage or a budget explains it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from isochrone_collector.alerts.conditions import is_absent, is_clock_wrong, of_vantage_clock
from isochrone_collector.alerts.message import AlertMessage, figures, of_absence, unit_of
from isochrone_collector.analysis.differential.participation import MAX_LEFT_OUT, percent
from isochrone_collector.fleet_state import VantageState, classify, fresh_us
from isochrone_wire.answers import Differential, Metric
from isochrone_wire.fleet import Liveness
from isochrone_wire.insights import AlertKind, DriftEvent, Incident
from isochrone_wire.model import DAY_US, Plan
from isochrone_wire.queries.status import Finding, FindingKind, Severity, State, TargetStatus

_FAILURES = {
    AlertKind.TARGET_FAILING: (FindingKind.TARGET_FAILING, "fails"),
    AlertKind.TARGET_THROTTLED: (FindingKind.TARGET_THROTTLED, "is throttled"),
}
# Of a change and its return, what is left of it as a share of the level before.
_LEFT = 0.1
_SMALLEST_P = 0.002


def of_incidents(incidents: Iterable[Incident]) -> Iterator[Finding]:
    """Yield the open incidents of targets."""
    for one in incidents:
        if one.kind not in _FAILURES or one.recovered_at is not None:
            continue
        kind, does = _FAILURES[one.kind]
        regions = tuple(sorted(one.failing or one.regions))
        what = "has never worked" if one.never_worked else does
        known = " (silenced)" if one.silences else ""
        yield Finding(
            kind=kind,
            severity=Severity.WARNING if one.silences else Severity.CRITICAL,
            sentence=f"{one.subject} {what} from {', '.join(regions)}{known}",
            target=one.subject,
            regions=regions,
            since_at=one.first_failed_at,
        )


def of_changes(differentials: Iterable[Differential], events: Sequence[DriftEvent]) -> Iterator[Finding]:
    """Yield the targets that are slower now, by steps of their differences, else by lasting changes of their own."""
    found: dict[tuple[str, str, Metric], Finding] = {}
    for one in differentials:
        if (step := _step(one)) is not None:
            key = (step.target, step.regions[0], one.metric)
            found[key] = max(found.get(key, step), step, key=lambda finding: finding.n)
    changes: dict[tuple[str, str, Metric], list[DriftEvent]] = {}
    for event in sorted(events, key=lambda event: event.changed_at):
        changes.setdefault((event.target, event.region, event.metric), []).append(event)
    for key, own in changes.items():
        if key not in found and (lasting := _lasting(own)) is not None:
            found[key] = lasting
    yield from found.values()


def _step(row: Differential) -> Finding | None:
    """Return the finding of a difference whose present level is worse than its usual one, the longest."""
    *earlier, present = row.levels or (None,)
    if present is None or not earlier or row.margin is None:
        return None
    usual = max(earlier, key=lambda level: level.n)
    worse = -1 if row.metric.more_is_better else 1
    rise = worse * (present.shift - usual.shift)
    is_known = present.low is None or present.high is None or not present.low <= usual.shift <= present.high
    if abs(rise) < row.margin or not is_known:
        return None
    # The side that became worse; if the other one became better, nothing is wrong.
    is_region = rise > 0
    medians = [one.region_median if is_region else one.baseline_median for one in (usual, present)]
    if worse * (medians[1] - medians[0]) < abs(rise) / 2:
        return None
    sign = 1 if is_region else -1
    bounds = (present.low, present.high)[::sign]
    low, high = (None if bound is None else sign * bound for bound in bounds)
    slower, other = (row.region, row.baseline)[::sign]
    now, before = figures(row.metric, sign * present.shift, sign * usual.shift, sign="+")
    unit, sure = unit_of(row.metric), "?"
    if low is not None and high is not None:
        unit, sure = f"{unit} (95 %: {' … '.join(figures(row.metric, low, high, sign='+'))})", ""
    return Finding(
        kind=FindingKind.SLOWER,
        severity=Severity.WARNING,
        sentence=f"{row.target} is slower from {slower}: {now}{sure} {unit} against {other}, {before} before",
        target=row.target,
        regions=(slower,),
        since_at=row.levels[row.levels.index(usual) + 1].from_at,
        metric=row.metric,
        unit=row.unit,
        baseline=other,
        shift=sign * present.shift,
        shift_low=low,
        shift_high=high,
        before=sign * usual.shift,
        n=present.n,
    )


def _lasting(events: Sequence[DriftEvent]) -> Finding | None:
    """Return the finding of a series with these changes, oldest first, unless the last one ended them."""
    first, last = events[0], events[-1]
    worse = -1 if last.metric.more_is_better else 1

    def is_worse(event: DriftEvent) -> bool:
        return worse * (event.after - first.before) > _LEFT * first.before

    if not is_worse(last):
        return None
    since_at = last.changed_at
    for event in reversed(events):
        if not is_worse(event):
            break
        since_at = event.changed_at
    after, before = figures(last.metric, last.after, first.before)
    name = "speed" if last.metric.more_is_better else last.metric.value
    return Finding(
        kind=FindingKind.SLOWER,
        severity=Severity.WARNING,
        sentence=f"{last.target} is slower from {last.region}: {name} {after} {unit_of(last.metric)}, {before} before"
        f" (p ≤ {max(last.p_value, _SMALLEST_P):.3f})",
        target=last.target,
        regions=(last.region,),
        since_at=since_at,
        metric=last.metric,
        unit=last.metric.unit,
        shift=last.after - first.before,
        before=first.before,
        n=last.n_after,
    )


def of_vantages(states: Iterable[VantageState], plan: Plan | None, *, now_at: int) -> list[Finding]:
    """Return the vantages that are absent, silent or busy, or have a wrong clock; not those gone for a day."""
    present = [one for one in states if now_at - one.last_seen_at < DAY_US]
    found = {one.name: _vantage(one, plan, now_at) for one in present}
    gone = [one for one in found.values() if one is not None and one.kind is FindingKind.VANTAGE_ABSENT]
    severity = Severity.CRITICAL if len(gone) == len(present) else Severity.WARNING
    return [replace(one, severity=severity) if one in gone else one for one in found.values() if one is not None]


def _vantage(state: VantageState, plan: Plan | None, now_at: int) -> Finding | None:
    liveness, reason = classify(state, now_at=now_at, plan=plan)
    kind, since_at = FindingKind.VANTAGE_ABSENT, state.last_seen_at
    if is_absent(state, now_at=now_at):
        sentence = of_absence(
            state.name, state.region, last_seen_at=state.last_seen_at, raised_at=now_at, stopped=state.stopped
        ).sentence
    elif liveness is Liveness.SILENT and now_at - state.first_seen_at > fresh_us(plan):
        sentence, since_at = f"{state.name} in {state.region}: {reason}", state.newest_sample_at or state.first_seen_at
    elif (state.left_out or 0.0) > MAX_LEFT_OUT:
        kind = FindingKind.VANTAGE_BUSY
        left_out = percent(state.left_out or 0.0)
        sentence = f"{state.name} in {state.region} is busy: {left_out} of its newest probes are not compared"
    elif is_clock_wrong(state.clock_offset_us, state.clock_uncertainty_us):
        kind = FindingKind.CLOCK_WRONG
        sentence = of_vantage_clock(state.name, state.region, state.clock_offset_us or 0, raised_at=now_at).sentence
    else:
        return None
    return Finding(
        kind=kind,
        severity=Severity.WARNING,
        sentence=sentence,
        regions=(state.region,),
        vantage=state.name,
        since_at=since_at if kind is FindingKind.VANTAGE_ABSENT else None,
    )


def of_message(message: AlertMessage, *, severity: Severity = Severity.WARNING) -> Finding:
    """Return the finding of an alert about the collector or a vantage that is due now."""
    details = message.details
    return Finding(
        kind=FindingKind(message.kind.value),
        severity=severity,
        sentence=f"{message.subject}: {message.sentence}",
        regions=tuple(filter(None, [details.get("region")])),
        vantage=details.get("vantage", ""),
        provider=details.get("provider", ""),
    )


def of_silence(states: Iterable[TargetStatus], explained: Collection[tuple[str, str]]) -> Iterator[Finding]:
    """Yield the targets without requests, but for the providers and regions whose reason is known."""
    stale: dict[str, list[TargetStatus]] = {}
    for one in states:
        if one.state is State.STALE and not {(one.provider, one.region), ("", one.region)} & set(explained):
            stale.setdefault(one.target, []).append(one)
    for target, own in stale.items():
        regions = tuple(one.region for one in own)
        yield Finding(
            kind=FindingKind.NOT_MEASURED,
            severity=Severity.WARNING,
            sentence=f"{target} is not measured: no request was sent from {', '.join(regions)}",
            target=target,
            regions=regions,
            since_at=max((one.newest_at for one in own if one.newest_at is not None), default=None),
        )
