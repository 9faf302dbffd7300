"""The query parameters that several paths share, as the OpenAPI document describes them. Pure."""

from isochrone_collector.analysis.time_series import MAX_POINTS
from isochrone_collector.http_api.endpoint import Parameter
from isochrone_collector.http_api.schemas import Schema
from isochrone_wire.answers import Metric
from isochrone_wire.model import DAY_US, SECOND_US

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
INSTANT: Schema = {"type": "string", "format": "date-time"}
SEVERAL: Schema = {"type": "array", "items": TEXT}

FORMAT = Parameter(name="format", schema={"type": "string", "enum": ["json"]}, description="Only json.")
TARGET = Parameter(name="target", schema=SEVERAL, description="Names or shell patterns; all if missing.")
REGION = Parameter(name="region", schema=SEVERAL, description="Regions; all if missing.")
METRIC = Parameter(
    name="metric",
    schema={"type": "string", "enum": [metric.value for metric in Metric]},
    description="ttft if missing.",
)
WINDOW = (
    Parameter(
        name="window",
        schema={"type": "string", "examples": ["24h", "7d", "today", "2026-11-01..2026-11-08"]},
        description="As the commands' --window; 24h if missing.",
    ),
    Parameter(name="from", schema=INSTANT, description="Instead of window."),
    Parameter(name="until", schema=INSTANT, description="With from; now if missing."),
)
SELECTION = (TARGET, REGION, *WINDOW, FORMAT)

LINES = "application/x-ndjson"
EXPORT = (
    Parameter(
        name="newest",
        schema={**COUNT, "maximum": 10_000},
        description="So many of the newest samples, newest first; all, oldest round first, if 0 or missing.",
    ),
    Parameter(name="after", schema=TEXT, description="Continue after the sample with this id; not with newest."),
    *SELECTION,
)
WATCH = (
    Parameter(name="since", schema=INSTANT, description="Samples received from this instant on; now if missing."),
    TARGET,
    REGION,
)


def limit(description: str) -> Parameter:
    """A limit on a latency in seconds, at most a day."""
    return Parameter(
        name="limit",
        schema={"type": "number", "minimum": 0.001, "maximum": DAY_US // SECOND_US},
        description=description,
    )


def points(usual: int) -> Parameter:
    """The number of points of a series; `usual` is that of requests without it."""
    return Parameter(
        name="points",
        schema={**COUNT, "maximum": MAX_POINTS},
        description=f"Maximum number of points of a series; {usual} if 0 or missing.",
    )
