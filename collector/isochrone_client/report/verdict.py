"""The verdict of a report: what is slower where and by how much, and what is happening now, in two sentences."""

from collections.abc import Iterator, Sequence

from isochrone_client.formats import age, between, display_unit, displayed, interval, moment, number
from isochrone_client.report.incidents import Incident, absent_vantages
from isochrone_wire.answers import Decision, Differential, DifferentialList, Window
from isochrone_wire.fleet import CoverageList, TargetList, VantageList
from isochrone_wire.model import MINUTE_US

# With more regions, one clause for each would not be a sentence any more.
_FEW_REGIONS = 2
_MOST = 3
# Samples older than this are not about now.
_STALE_US = 5 * MINUTE_US
_DECIDED = (Decision.SLOWER, Decision.FASTER)


def comparison(rows: Sequence[Differential]) -> str:
    """The regions compared with the baseline: the number of targets, and the largest difference in each direction."""
    regions = list(dict.fromkeys(row.region for row in rows))
    if not rows:
        return ""
    if len(regions) > _FEW_REGIONS:
        return _overall(rows)
    clauses = [_of_region([row for row in rows if row.region == region]) for region in regions]
    return f"Compared with {rows[0].baseline}: {'; '.join(clauses)}."


def _of_region(rows: Sequence[Differential]) -> str:
    targets = _plural(len(rows), "target")
    return f"from {rows[0].region}, {_counted(rows, of=f'of {targets}') or f'no difference of {targets} is certain'}"


def _overall(rows: Sequence[Differential]) -> str:
    regions = {row.region for row in rows}
    counted = _counted(rows, of=f"of {len(rows)} pairs of a target and one of {len(regions)} regions", with_region=True)
    return f"Compared with {rows[0].baseline}: {counted or f'no difference of {len(rows)} pairs is certain'}."


def _counted(rows: Sequence[Differential], *, of: str, with_region: bool = False) -> str:
    """`1 of 15 targets is slower (p/m by 400 ms, 381 … 420) and 12 are faster (most: …)`; empty if none is decided."""
    parts: list[str] = []
    for decision in _DECIDED:
        own = sorted((row for row in rows if row.decision is decision), key=lambda row: -abs(row.shift or 0.0))
        if own:
            whole = "" if parts else f" {of}"
            verb = "is" if len(own) == 1 else "are"
            most = "" if len(own) == 1 else "most: "
            parts.append(f"{len(own)}{whole} {verb} {decision} ({most}{_size(own[0], with_region=with_region)})")
    return " and ".join(parts)


def _size(row: Differential, *, with_region: bool) -> str:
    bounds = sorted(abs(bound) for bound in (row.shift_low, row.shift_high) if bound is not None)
    around = f", {interval(displayed(bounds[0], row.unit), displayed(bounds[-1], row.unit))}" if bounds else ""
    place = f"{row.target} from {row.region}" if with_region else row.target
    size = number(displayed(abs(row.shift or 0.0), row.unit))
    return f"{place} by {size} {display_unit(row.unit)}{around}"


def present(
    incidents: Sequence[Incident],
    vantages: VantageList | None,
    *,
    newest_at: int,
    now_at: int,
) -> str:
    """The ongoing incidents, or those at the end of the data if these are old."""
    is_stale = now_at - newest_at > _STALE_US
    when = f"At {moment(newest_at, now_at=now_at)} UTC, the newest sample" if is_stale else "Now"
    lasting = [f"{one.place} {one.sentence}, since {_moment(one, now_at)}" for one in incidents if one.until_at is None]
    gone = absent_vantages(vantages, incidents) if vantages and not is_stale else ()
    events = [*gone, *lasting]
    if not events:
        return f"{when}: no ongoing incident{_ended(incidents, now_at=now_at)}."
    more = f"; and {len(events) - _MOST} more below" if len(events) > _MOST else ""
    return f"{when}: {'; '.join(events[:_MOST])}{more}."


def _moment(incident: Incident, now_at: int) -> str:
    return moment(incident.from_at, now_at=now_at)


def _ended(incidents: Sequence[Incident], *, now_at: int) -> str:
    ended = [one.until_at for one in incidents if one.until_at is not None]
    return f"; the last one ended at {moment(max(ended), now_at=now_at)} UTC" if ended else ""


def missing(
    plan: TargetList,
    coverage: CoverageList | None,
    vantages: VantageList | None,
    differences: DifferentialList | None,
    *,
    baseline: str,
    window: Window,
    now_at: int,
) -> Iterator[str]:
    """The reasons for the absence of a comparison, with the remedies; none if there is a comparison."""
    if differences is not None and any(row.shift is not None for row in differences.differentials):
        return
    if not plan.plan_version:
        yield "No plan is applied: isochrone-collector apply plan.yaml."
    if vantages is not None and not vantages.vantages:
        yield "No agent has reported yet: start one in each region with isochrone-agent run."
    regions = {row.region for row in coverage.coverage if row.recorded} if coverage else set()
    absent = differences.missing if differences is not None else ()
    if not regions:
        yield f"No samples between {between(window)}{_newest(vantages, now_at=now_at)}."
    elif not baseline:
        yield "There is no baseline region to compare with: choose one with --baseline."
    elif not absent:
        yield f"Too few rounds for a comparison of {', '.join(sorted(regions))}: 6 rounds of each target are needed."
    yield from (f"{one.sentence[:1].upper()}{one.sentence[1:]}." for one in absent[:_MOST])


def _newest(vantages: VantageList | None, *, now_at: int) -> str:
    known = [row.newest_sample_at for row in vantages.vantages if row.newest_sample_at] if vantages else []
    return f"; the newest sample is {age(max(known), now_at=now_at)} old: use a longer --window" if known else ""


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
