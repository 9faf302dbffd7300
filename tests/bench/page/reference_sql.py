"""The SQL that a view or a series needs, timed directly on the database, with the settings of the collector's queries.

For the matrix it is the statement that reads the probes of a window, for a long series one statement each for the
histograms, the outcomes, and the probes that are not summarised yet. All rows are received, and nothing is done with
them. What else the collector asks, such as names of targets and regions, takes a few milliseconds.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from isochrone_collector.store import leaderboards, summaries
from isochrone_collector.store.postgres.pool import Database, Statement, query
from isochrone_collector.store.postgres.values import parameters_of
from isochrone_collector.store.probe_queries import Scope, needed_columns, record_of, record_type
from isochrone_collector.store.summaries import Piece, Resolution
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import SECOND_US, Outcome

TIMEOUT_US = 60 * SECOND_US

Asked = tuple[Statement, Mapping[str, object]]
"""A statement and its parameters."""


def matrix(scope: Scope) -> list[Asked]:
    """Return the statement of the matrix in a window; the scope must have regions."""
    return [(_probes(leaderboards.COLUMNS), scope.parameters())]


def _probes(columns: tuple[str, ...]) -> Statement:
    return query("probe_columns").format(record=record_of(record_type(*columns)))


def long_series(scope: Scope, *, summarised_until: int) -> list[Asked]:
    """Return the statements of a series of TTFT from summaries of hours, and from probes since an instant."""
    hours = Piece(resolution=Resolution.HOUR, window=Window(from_at=scope.window.from_at, until_at=summarised_until))
    since = replace(scope, window=Window(from_at=summarised_until, until_at=scope.window.until_at))
    values = query("joined_summaries").format(starts=summaries._STARTS)
    return [
        (values, summaries._parameters(scope, hours) | {"metrics": [Metric.TTFT.value]}),
        (query("outcomes_over_time"), summaries._parameters(scope, hours) | {"outcomes": list(Outcome)}),
        (_probes(("vantage_id", "round_at", *needed_columns(Metric.TTFT))), since.parameters()),
    ]


async def run_s(conninfo: str, asked: Sequence[Asked]) -> float:
    """Run statements one after the other; return the time until all rows have arrived, in seconds."""
    database = Database(conninfo, statement_timeout_us=TIMEOUT_US)
    await database.open()
    try:
        async with database.connection() as connection, connection.cursor(binary=True) as cursor:
            begun = time.monotonic()
            for statement, parameters in asked:
                await cursor.execute(statement, parameters_of(parameters))
                await cursor.fetchall()
            return time.monotonic() - begun
    finally:
        await database.close()
