"""JSON documents of answers, as `--output json` prints them and the HTTP interface serves them. Pure.

{"schema": "isochrone.leaderboard/1", "window": {"from_at": …, "until_at": …}, "order": "ttft", …, "rows": [{…}, …]}

First comes the name of the document with its version, then the fields of the answer except its rows, then the rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar

from isochrone_wire.answers import Metric
from isochrone_wire.json_format import JsonError, fields_to_json, from_json, to_json_value

Answer = TypeVar("Answer")
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DocumentFormat:
    """The document of a class of answers: its `name`, and the field of the answer that holds its `rows`.
    Rows are sorted by `order`, or stay as they are without one. The fields of the objects that are named in `inline`
    are fields of the row. Fields of the answer that are named in `omitted` are not in the document.
    """

    name: str
    rows: str
    order: Callable[[Any], Any] | None = None
    inline: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """The name of the document with its version."""
        return f"isochrone.{self.name}/1"

    def rows_of(self, answer: object) -> tuple[Any, ...]:
        """Return the rows of an answer in their order."""
        rows: tuple[Any, ...] = getattr(answer, self.rows)
        return rows if self.order is None else tuple(sorted(rows, key=self.order))

    def facts(self, answer: Any) -> Record:  # noqa: ANN401  # any class of answers
        """Return the fields of the document besides its schema and its rows."""
        left_out = (self.rows, *self.omitted)
        return fields_to_json(answer, tuple(field.name for field in fields(answer) if field.name not in left_out))

    def record(self, row: object) -> Record:
        """Return a row as plain data."""
        found: Record = to_json_value(row)
        for name in self.inline:
            found |= found.pop(name)
        return found


_PLACE_OF = {metric: place for place, metric in enumerate(Metric)}


_FORMATS = {
    # Newest first; open incidents before others, changes by metric.
    "AlertList": DocumentFormat("alerts", "alerts", lambda row: (-row.raised_at, row.id)),
    "CoverageList": DocumentFormat("coverage", "coverage", attrgetter("region", "vantage", "target")),
    "DifferentialList": DocumentFormat("diff", "differentials"),
    "DriftList": DocumentFormat(
        "drift", "events", lambda row: (_PLACE_OF[row.metric], -row.changed_at, row.target, row.region)
    ),
    "IncidentList": DocumentFormat(
        "incidents", "incidents", lambda row: (row.recovered_at is not None, -row.opened_at, row.id)
    ),
    "LatencyBudgetList": DocumentFormat("budgets", "budgets"),
    "Leaderboard": DocumentFormat("leaderboard", "standings", attrgetter("region", "rank", "target")),
    "RateLimitList": DocumentFormat("rate-limits", "limits"),
    "RegionCostList": DocumentFormat("region-costs", "costs"),
    "RouteEventList": DocumentFormat("route-events", "events"),
    "SampleList": DocumentFormat(
        "samples",
        "samples",
        attrgetter("sample.round_at", "sample.dispatched_at", "target", "vantage", "id"),
        inline=("sample",),
        omitted=("resume_at",),
    ),
    "SeriesList": DocumentFormat("series", "series", attrgetter("region", "target")),
    "SimulationList": DocumentFormat("simulate", "simulations"),
    "SpendList": DocumentFormat("spend", "spend", attrgetter("region", "vantage", "provider")),
    "StatusList": DocumentFormat("status", "findings"),
    "TargetList": DocumentFormat("targets", "targets", attrgetter("name")),
    "TierList": DocumentFormat("tiers", "tiers"),
    "VantageList": DocumentFormat("vantages", "vantages", attrgetter("region", "name")),
}
FORMATS: Mapping[str, DocumentFormat] = MappingProxyType(_FORMATS)
"""The formats by the names of the classes of answers, which few programs import all."""


def document(answer: object) -> Record:
    """Return an answer as a JSON document. Raises `KeyError` for a class without a format."""
    found = FORMATS[type(answer).__name__]
    rows = [found.record(row) for row in found.rows_of(answer)]
    return {"schema": found.schema, **found.facts(answer), "rows": rows}


def read_document(cls: type[Answer], data: object) -> Answer:
    """Return the answer of class `cls` in a JSON document. Raises `JsonError`."""
    schema = FORMATS[cls.__name__].schema
    if isinstance(data, dict) and data.get("schema") != schema:
        raise JsonError(f"{data.get('schema')!r:.60} is not {schema!r}", "schema")
    return read_fields(cls, data)


def read_fields(cls: type[Answer], data: object) -> Answer:
    """Return the answer of class `cls` in the fields and rows of a document, without its schema. Raises `JsonError`."""
    found = FORMATS[cls.__name__]
    if not isinstance(data, dict):
        raise JsonError(f"{data!r:.60} is not an object")
    rows = data.get("rows")
    if found.inline and isinstance(rows, list):
        rows = [{**row, **dict.fromkeys(found.inline, row)} if isinstance(row, dict) else row for row in rows]
    try:
        return from_json(cls, {**data, found.rows: rows})
    except JsonError as error:
        first, *rest = error.path or ("",)
        raise JsonError(error.problem, "rows" if first == found.rows else first, *rest) from None
