"""The status of targets per region in one word, for the public. Pure.

The laws; the first that applies counts:

1. `stale`: no request was sent for 15 minutes and for three of the target's intervals. There is no present state.
2. `failing`: an incident that includes the region is open.
3. `slow`: the median first token of the last hour is more than half above that of the last day, and of five requests.
4. `ok`: everything else.

A status has nothing of vantages, prices, errors and the texts of requests and answers.
"""

from collections.abc import Iterable, Mapping, Sequence

from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.incidents import incidents
from isochrone_collector.queries.ranking import leaderboard
from isochrone_wire.answers import Selection, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import AlertKind, Incident, Standing
from isochrone_wire.model import DAY_US, MINUTE_US, Target
from isochrone_wire.queries.status import OpenIncident, State, StatusList, TargetStatus

STALE_US = 15 * MINUTE_US
STALE_ROUNDS = 3
SLOW_FACTOR = 1.5
SLOW_REQUESTS = 5

_KINDS = {AlertKind.TARGET_FAILING: "failing", AlertKind.TARGET_THROTTLED: "throttled"}


def status_of(
    targets: Iterable[Target],
    day: Sequence[Standing],
    hour: Sequence[Standing],
    opened: Iterable[Incident],
    *,
    window: Window,
) -> StatusList:
    """Return the status at the end of the `window` of the standings `day`; `hour` are those of its last hour."""
    shown = sorted((target for target in targets if not target.paused), key=lambda target: target.name)
    names = {target.name for target in shown}
    incidents = tuple(_incident(one) for one in opened if one.kind in _KINDS and one.subject in names)
    failing = {(one.target, region) for one in incidents for region in one.regions}
    long, short = _by_place(day), _by_place(hour)
    regions = sorted({standing.region for standing in day})
    return StatusList(
        window=window,
        incidents=incidents,
        rows=tuple(
            _row(
                target,
                region,
                long.get((target.name, region)),
                short.get((target.name, region)),
                now_at=window.until_at,
                is_failing=(target.name, region) in failing,
            )
            for target in shown
            for region in regions
        ),
    )


def _incident(incident: Incident) -> OpenIncident:
    return OpenIncident(
        target=incident.subject,
        kind=_KINDS[incident.kind],
        regions=tuple(sorted(incident.failing)),
        since_at=incident.first_failed_at,
    )


def _by_place(standings: Iterable[Standing]) -> Mapping[tuple[str, str], Standing]:
    return {(standing.target, standing.region): standing for standing in standings}


def _row(
    target: Target, region: str, day: Standing | None, hour: Standing | None, *, now_at: int, is_failing: bool
) -> TargetStatus:
    recent_us = hour.ttft_p50_us.value if hour and hour.ttft_p50_us and hour.n >= SLOW_REQUESTS else None
    median = day.ttft_p50_us if day else None
    if _is_stale(target, day, hour, now_at):
        state = State.STALE
    elif is_failing:
        state = State.FAILING
    else:
        is_slow = recent_us is not None and median is not None and recent_us > SLOW_FACTOR * median.value
        state = State.SLOW if is_slow else State.OK
    return TargetStatus(
        target=target.name,
        provider=target.provider,
        region=region,
        state=state,
        success=day.success.value if day and day.success else None,
        ttft_p50_us=median.value if median else None,
        recent_ttft_p50_us=recent_us,
        newest_at=day.newest_at if day else None,
        is_early=median is not None and None in (median.low, median.high),
    )


def _is_stale(target: Target, day: Standing | None, hour: Standing | None, now_at: int) -> bool:
    if day is None or day.newest_at is None or not _sent(day):
        return True
    # Rounds that were skipped sent no request.
    if hour is not None and not _sent(hour):
        return True
    return now_at - day.newest_at > max(STALE_US, STALE_ROUNDS * target.every_us)


def _sent(standing: Standing) -> bool:
    return standing.success is not None or standing.throttled > 0


async def status(context: QueryContext, *, shown: NameFilter = EVERY_NAME) -> StatusList:
    """Return the status of every target that is `shown`, and of its regions, by the last 24 hours."""
    now_at = context.clock()
    window = Window(from_at=now_at - DAY_US, until_at=now_at)
    day = await leaderboard(context, Selection(window=window))
    hour = await leaderboard(context, Selection(window=Window(from_at=now_at - HOUR_US, until_at=now_at)))
    opened = await incidents(context, window, past=False, id=0)
    targets, measured = context.targets().targets, day.standings
    if shown != EVERY_NAME:
        names = shown.select(target.name for target in targets)
        targets = tuple(target for target in targets if target.name in names)
        # Otherwise a region that measures other targets only would be in the status.
        measured = tuple(standing for standing in measured if standing.target in names)
    return status_of(targets, measured, hour.standings, opened.incidents, window=window)
