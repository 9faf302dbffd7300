"""The query for rate limits: what response headers state, over time, and when nothing will remain."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby

from isochrone_collector.analysis.rate_limits import MAX_READINGS, Reading, forecast
from isochrone_collector.analysis.time_series import bucket_width
from isochrone_collector.errors import BadRequest
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve
from isochrone_collector.store import samples
from isochrone_collector.store.samples import Record
from isochrone_common.probe_metrics import KINDS
from isochrone_wire.answers import Selection
from isochrone_wire.insights import RateLimitList, RateLimitPoint, RateLimitSeries
from isochrone_wire.model import MINUTE_US

USUAL_POINTS = 24
RECENT_US = 6 * 60 * MINUTE_US
"""The end of a window, in microseconds, from which the newest headers and the forecast come."""

_MAX_BUCKETS = 50_000


async def rate_limits(context: QueryContext, selection: Selection, *, points: int = 0) -> RateLimitList:
    """Return one series per target, vantage and kind of limit that was stated in the last six hours of the window, in
    at most `points` buckets, 24 if it is 0. Raises `BadRequest` and `UnknownName`.
    """
    bucket_us = bucket_width(selection.window, points=points or USUAL_POINTS)
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        window = selection.window
        recent = replace(window, from_at=max(window.from_at, window.until_at - RECENT_US))
        newest = replace(resolved.scope, window=recent)
        readings = await samples.rate_limit_readings(connection, newest, newest=MAX_READINGS)
        buckets = await samples.rate_limit_history(
            connection, resolved.scope, bucket_us=bucket_us, limit=_MAX_BUCKETS + 1
        )
    if len(buckets) > _MAX_BUCKETS:
        raise BadRequest(f"more than {_MAX_BUCKETS} points: choose fewer targets, regions or points")
    credentials = {target.id: target.credential or "" for target in context.targets().targets}
    history = {key: list(rows) for key, rows in groupby(buckets, key=_key)}
    found = [
        replace(one, credential=credentials.get(key[0], ""))
        for key, rows in groupby(readings, key=_key)
        for one in _series(resolved, list(rows), history.get(key, ()))
    ]
    order = sorted(found, key=lambda one: (one.region, one.target, one.vantage, one.kind))
    return RateLimitList(window=window, bucket_us=bucket_us, limits=tuple(order))


def _key(row: Record) -> tuple[int, str, str]:
    return row["target_id"], row["region"], row["vantage"]


def _series(
    resolved: ResolvedSelection, rows: Sequence[Record], buckets: Sequence[Record]
) -> Iterator[RateLimitSeries]:
    target_id, region, vantage = _key(rows[0])
    for kind in KINDS:
        readings = [
            Reading(at=row["at"], remaining=remaining, limit=row[f"limit_{kind}"], reset_us=row[f"reset_{kind}_us"])
            for row in rows
            if (remaining := row[f"remaining_{kind}"]) is not None
        ]
        if not readings:
            continue
        newest = readings[-1]
        points = tuple(
            RateLimitPoint(at=bucket["at"], remaining=lowest)
            for bucket in buckets
            if (lowest := bucket[kind]) is not None
        )
        yield RateLimitSeries(
            target=resolved.names[target_id],
            provider=resolved.targets[target_id].provider,
            region=region,
            vantage=vantage,
            kind=kind,
            newest_at=newest.at,
            remaining=newest.remaining,
            limit=newest.limit,
            reset_us=newest.reset_us,
            lowest=min(newest.remaining, *(point.remaining for point in points)) if points else newest.remaining,
            n=max(sum(bucket[f"{kind}_n"] for bucket in buckets), len(readings)),
            points=points,
            **asdict(forecast(readings)),
        )
