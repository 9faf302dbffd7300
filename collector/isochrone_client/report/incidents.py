"""Incidents of a report: failing targets, new levels and absent vantages, collected from several answers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from isochrone_client.formats import UNKNOWN, display_unit, displayed, moment, number
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import Differential, DifferentialList, Level, Metric
from isochrone_wire.fleet import CoverageList, Liveness, VantageList
from isochrone_wire.insights import AlertKind, AlertList, DriftEvent, DriftList, IncidentList
from isochrone_wire.insights import Incident as TargetIncident
from isochrone_wire.model import MINUTE_US
from isochrone_wire.queries.series import SeriesList, SeriesPoint

SCHEMA = "isochrone.incidents/1"
# An outage has at least so many failed probes, at least half of those sent in each of its buckets.
_MIN_FAILED = 3
# A series that ends so many buckets before the newest one has no current state.
_CURRENT_BUCKETS = 3
# Two answers may date the same step differently by this much.
_SAME_US = 10 * MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that happened within the window, to one target or to one vantage; the other name is empty. `until_at`
    is `None` while it lasts. `sentence` follows the place: `p/m from sg` `is slower by 400 ms: 205 → 605 ms`.
    """

    regions: tuple[str, ...]
    target: str = ""
    vantage: str = ""
    from_at: int
    sentence: str
    until_at: int | None = None
    is_worse: bool = True

    @property
    def region(self) -> str:
        """The region, or the list of them."""
        return ", ".join(self.regions)

    @property
    def place(self) -> str:
        """The target and the region, or the vantage and the region."""
        return f"{self.target} from {self.region}" if self.target else f"{self.vantage} in {self.region}"


def find_incidents(
    *,
    drift: DriftList | None,
    failures: IncidentList | None,
    coverage: CoverageList | None,
    series: SeriesList | None,
    alerts: AlertList | None,
    vantages: VantageList | None,
    differences: DifferentialList | None,
) -> tuple[Incident, ...]:
    """The incidents of all answers that exist: those that last first, then the newest first. Failures are those of
    targets and regions with `coverage`; the outages of a series are those that no failure explains.
    """
    failed = tuple(_failures(failures, coverage)) if failures else ()
    outages = _outages(series) if series else ()
    found = [
        *failed,
        *(_levels(drift) if drift else ()),
        *(outage for outage in outages if not any(_is_explained(outage, by=one) for one in failed)),
        *(_absences(alerts, vantages) if alerts else ()),
    ]
    for row in differences.differentials if differences else ():
        found += [step for step in _steps(row) if not any(_is_same(step, one) for one in found)]
    return tuple(sorted(found, key=lambda one: (one.until_at is not None, -one.from_at, one.place)))


def page(incidents: Sequence[Incident], *, now_at: int, notes: tuple[str, ...] = ()) -> Page[tuple[int, Incident]]:
    """The numbered incidents; the numbers are those of the marks in the charts."""
    return Page(
        schema=SCHEMA,
        title="incidents",
        fields=(),
        columns=(
            Column(heading="no.", text=lambda row: str(row[0])),
            Column(heading="where", text=lambda row: row[1].place, wide=True),
            Column(heading="what happened", text=lambda row: row[1].sentence, wide=True, prose=True, style=_colour),
            Column(heading="since", unit="UTC", text=lambda row: moment(row[1].from_at, now_at=now_at)),
            Column(heading="until", unit="UTC", text=lambda row: _end(row[1], now_at=now_at)),
        ),
        rows=tuple(enumerate(incidents, start=1)),
        notes=notes,
    )


def _colour(row: tuple[int, Incident]) -> str:
    return "red" if row[1].is_worse else "green"


def _end(incident: Incident, *, now_at: int) -> str:
    return "still lasts" if incident.until_at is None else moment(incident.until_at, now_at=now_at)


def _failures(answer: IncidentList, coverage: CoverageList | None) -> Iterator[Incident]:
    """The incidents of targets that the collector has found."""
    places = {(row.target, row.region) for row in coverage.coverage} if coverage else None
    for row in answer.incidents:
        if places is None or any((row.subject, region) in places for region in row.regions):
            lasts = row.recovered_at is None
            yield Incident(
                target=row.subject,
                regions=row.regions,
                from_at=row.first_failed_at,
                until_at=row.recovered_at,
                sentence=f"{_failed(row, lasts=lasts)}: {', '.join(f'{n} {name}' for name, n in row.classes.items())}",
            )


def _failed(row: TargetIncident, *, lasts: bool) -> str:
    if row.kind is AlertKind.TARGET_THROTTLED:
        return "is throttled" if lasts else "was throttled"
    if row.never_worked and lasts:
        return "has never worked"
    return "fails" if lasts else "failed"


def _is_explained(outage: Incident, *, by: Incident) -> bool:
    """True if an outage of a series is a failure of the same target that the collector has found."""
    is_within = by.until_at is None or outage.from_at <= by.until_at
    begins_before_end = outage.until_at is None or by.from_at <= outage.until_at
    return outage.target == by.target and outage.region in by.regions and is_within and begins_before_end


def _levels(answer: DriftList) -> Iterator[Incident]:
    """The lasting changes. A change back to about the level before ends one, and is none itself."""

    def key(event: DriftEvent) -> tuple[str, str, str]:
        return (event.target, event.region, event.metric)

    for _, group in groupby(sorted(answer.events, key=lambda event: (*key(event), event.changed_at)), key=key):
        events = list(group)
        while events:
            event = events.pop(0)
            is_over = bool(events) and _is_back(event, events[0])
            yield _level(event, until_at=events.pop(0).changed_at if is_over else None)


def _is_back(event: DriftEvent, following: DriftEvent) -> bool:
    return 2 * abs(following.after - event.before) < abs(event.after - event.before)


def _level(event: DriftEvent, *, until_at: int | None) -> Incident:
    is_worse = (event.after > event.before) != event.metric.more_is_better
    return Incident(
        target=event.target,
        regions=(event.region,),
        from_at=event.changed_at,
        until_at=until_at,
        is_worse=is_worse,
        sentence=_change(event.metric, event.before, event.after, has_ended=until_at is not None),
    )


def _steps(row: Differential) -> Iterator[Incident]:
    """The steps of a difference by at least the smallest that matters, as changes of the side that moved. A step back
    to about the level before ends one.
    """
    levels = list(row.levels)
    while len(levels) > 1:
        before, level = levels[:2]
        size = abs(level.shift - before.shift)
        is_over = len(levels) > 2 and 2 * abs(levels[2].shift - before.shift) < size  # noqa: PLR2004  # the level after
        if size >= (row.margin or 0.0):
            yield _step(row, before, level, until_at=levels[2].from_at if is_over else None)
        levels = levels[2:] if is_over else levels[1:]


def _step(row: Differential, before: Level, level: Level, *, until_at: int | None) -> Incident:
    sides = {
        row.region: (before.region_median, level.region_median),
        row.baseline: (before.baseline_median, level.baseline_median),
    }
    region, (old, new) = max(sides.items(), key=lambda side: abs(side[1][1] - side[1][0]))
    return Incident(
        target=row.target,
        regions=(region,),
        from_at=level.from_at,
        until_at=until_at,
        is_worse=(new > old) != row.metric.more_is_better,
        sentence=_change(row.metric, old, new, has_ended=until_at is not None, size=abs(level.shift - before.shift)),
    )


def _is_same(step: Incident, known: Incident) -> bool:
    """True if a step is that of a known change, which may be dated some rounds earlier or later."""
    changes = [(one.target, one.regions, one.is_worse) for one in (step, known)]
    return changes[0] == changes[1] and abs(step.from_at - known.from_at) <= _SAME_US


def _change(metric: Metric, before: float, after: float, *, has_ended: bool, size: float | None = None) -> str:
    """`is slower by 400 ms: ttft 205 → 605 ms`; by `size` if it is not the difference of the two levels."""
    is_worse = (after > before) != metric.more_is_better
    verb, word = "was" if has_ended else "is", "slower" if is_worse else "faster"
    by = quantity(metric, abs(after - before) if size is None else size)
    name = "speed" if metric is Metric.TOKENS_PER_SECOND else metric
    return f"{verb} {word} by {by}: {name} {quantity(metric, before, unit=False)} → {quantity(metric, after)}"


def quantity(metric: Metric, value: float | None, *, unit: bool = True) -> str:
    """A value of a metric, with its unit: `205 ms`, `60 tokens/s`."""
    text = number(displayed(value, metric.unit))
    return f"{text} {display_unit(metric.unit)}" if unit and text != UNKNOWN else text


def _outages(answer: SeriesList) -> Iterator[Incident]:
    """The runs of buckets in which at least half of the probes failed."""
    newest_at = max((line.points[-1].at for line in answer.series if line.points), default=0)
    for line in answer.series:
        for is_out, run in groupby(line.points, key=_is_out):
            points = tuple(run)
            failed, sent = sum(point.failed for point in points), sum(point.failed + point.ok for point in points)
            if is_out and failed >= _MIN_FAILED:
                is_last = points[-1] is line.points[-1]
                lasts = is_last and newest_at - points[-1].at <= _CURRENT_BUCKETS * answer.bucket_us
                yield Incident(
                    target=line.target,
                    regions=(line.region,),
                    from_at=points[0].at,
                    until_at=None if lasts else points[-1].at + answer.bucket_us,
                    sentence=f"{'fails' if lasts else 'failed'}: {failed} of {sent} probes",
                )


def _is_out(point: SeriesPoint) -> bool:
    return 0 < point.ok + point.failed <= 2 * point.failed


def _absences(answer: AlertList, vantages: VantageList | None) -> Iterator[Incident]:
    """The vantages that were reported absent, until they were reported back."""
    region_of = {row.name: row.region for row in vantages.vantages} if vantages else {}
    alerts = sorted(answer.alerts, key=lambda alert: alert.raised_at)
    for alert in alerts:
        if alert.kind is AlertKind.VANTAGE_ABSENT:
            ends = [
                one.raised_at
                for one in alerts
                if one.kind is AlertKind.VANTAGE_BACK
                and one.subject == alert.subject
                and one.raised_at > alert.raised_at
            ]
            region = region_of.get(alert.subject, "")
            yield Incident(
                vantage=alert.subject,
                regions=(region,),
                from_at=alert.raised_at,
                until_at=min(ends, default=None),
                sentence=alert.sentence.removeprefix(f"{alert.subject} in {region} "),
            )


def absent_vantages(answer: VantageList, incidents: Iterable[Incident]) -> tuple[str, ...]:
    """A phrase for each vantage that delivers no samples although it should, unless it is among the incidents."""
    known = {incident.vantage for incident in incidents if incident.until_at is None}
    return tuple(
        f"{row.name} in {row.region}: {row.reason}"
        for row in answer.vantages
        if row.liveness in (Liveness.LATE, Liveness.SILENT) and row.name not in known
    )


def of_place(incidents: Iterable[Incident], *, target: str, regions: Sequence[str]) -> Iterator[tuple[int, Incident]]:
    """The numbered incidents of a target, and those of the whole regions."""
    for place, incident in enumerate(incidents, start=1):
        if incident.target in (target, "") and not set(incident.regions).isdisjoint(regions):
            yield place, incident
