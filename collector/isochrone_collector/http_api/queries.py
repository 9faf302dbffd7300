"""The paths that are answered from the database, and their handler.

Answers may be shared by callers who ask the same at nearly the same time: the query runs once for all of them. This is
for callers that accept an answer of some age and state it (`Cache-Control: max-age=60`), and open pages. All others get
an answer of their own. However slow a query is, sharing leaves it a twentieth of the time.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Generic, TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.analysis.time_series import FEWEST_BINS, MAX_BINS, MAX_POINTS
from isochrone_collector.auth.limits import CallSlots
from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.http_api import responses
from isochrone_collector.http_api.requests import (
    COUNT,
    FORMAT,
    METRIC,
    REGION,
    SELECTION,
    SEVERAL,
    TARGET,
    TEXT,
    WINDOW,
    Endpoint,
    Parameter,
    ParsedRequest,
    limit,
    points,
)
from isochrone_collector.http_api.responses import (
    VARY,
    EncodedDocument,
    JsonResponse,
    accepts_gzip,
    encode_compressed,
    encode_document,
)
from isochrone_collector.queries import (
    differentials,
    fleet,
    incidents,
    ranking,
    rate_limits,
    routes,
    samples,
    series,
    simulations,
)
from isochrone_collector.queries.context import QueryContext
from isochrone_wire.answers import Decision, DifferentialList, Order, Window
from isochrone_wire.fleet import CoverageList, SampleList, SpendList, TargetList, VantageList
from isochrone_wire.insights import (
    AlertList,
    DriftList,
    IncidentList,
    LatencyBudgetList,
    Leaderboard,
    RateLimitList,
    RegionCostList,
    SimulationList,
    TierList,
)
from isochrone_wire.model import DAY_US
from isochrone_wire.operations import parse_incident_name
from isochrone_wire.queries.differential_order import DECIDED, DEFAULT_SORT, SORTS, select_rows
from isochrone_wire.queries.series import SeriesList
from isochrone_wire.routes import Explanation, RouteEventList
from isochrone_wire.text import shortened

Answer = TypeVar("Answer")
_USUAL_SAMPLES, _MAX_SAMPLES = 20, 1_000
_MAX_SHOWN = 80
_ONLY = (DECIDED, *(decision.value for decision in Decision))


async def _targets(context: QueryContext, _request: ParsedRequest) -> TargetList:
    return context.targets()


async def _differentials(context: QueryContext, request: ParsedRequest) -> DifferentialList:
    only, sort = request.choice("only", _ONLY), request.choice("sort", SORTS) or DEFAULT_SORT
    answer = await differentials.differentials(
        context,
        request.selection,
        baseline=request.text("baseline"),
        against=request.texts("against"),
        metric=request.text("metric"),
        explain=request.flag("explain"),
    )
    return replace(answer, differentials=select_rows(answer, sort=sort, only=only))


def _limit_of(request: ParsedRequest) -> int:
    limit = request.count("limit") or _USUAL_SAMPLES
    if limit > _MAX_SAMPLES:
        raise BadRequest(f"limit={limit}: at most {_MAX_SAMPLES}", hint="`isochrone samples export` writes all samples")
    return limit


async def _incident(context: QueryContext, request: ParsedRequest) -> IncidentList:
    incident_id = parse_incident_name(request.path["id"])
    if incident_id is None:
        raise UnknownName(f"{shortened(request.path['id'], _MAX_SHOWN)!r} is not the id of an incident")
    window = Window(from_at=request.now_at - DAY_US, until_at=request.now_at)
    return await incidents.incidents(context, window, past=True, id=incident_id)


ENDPOINTS = (
    Endpoint(
        path="/v1/targets",
        summary="The targets of the plan in force, and its baseline region.",
        answer=TargetList,
        query=_targets,
        parameters=(FORMAT,),
    ),
    Endpoint(
        path="/v1/vantages",
        summary="The vantages of all regions, with their state.",
        answer=VantageList,
        query=lambda context, _request: fleet.vantage_list(context),
        parameters=(FORMAT,),
    ),
    Endpoint(
        path="/v1/leaderboard",
        summary="Targets ranked within each region.",
        answer=Leaderboard,
        query=lambda context, request: ranking.leaderboard(
            context, request.selection, order=request.text("by"), needed=request.texts("quantity")
        ),
        parameters=(
            Parameter(
                name="by",
                schema={"type": "string", "enum": [order.value for order in Order]},
                description="The order; ttft if missing.",
            ),
            Parameter(
                name="quantity",
                schema={"type": "array", "items": {"type": "string", "enum": list(ranking.NEEDED)}},
                description="Quantities that are needed: others may be null. All if missing.",
            ),
            *SELECTION,
        ),
    ),
    Endpoint(
        path="/v1/slo",
        summary="Goodput under the latency limits of uses, per target and region, with a decision.",
        answer=LatencyBudgetList,
        query=lambda context, request: ranking.latency_targets(
            context,
            request.selection,
            uses=request.texts("use"),
            by=request.text("by"),
            answer_tokens=request.count("answer"),
            limit_us=request.seconds_us("limit"),
            min_tokens_per_second=request.number("min-speed"),
        ),
        parameters=(
            Parameter(name="use", schema=SEVERAL, description="Uses, such as voice or chat; all if missing."),
            Parameter(
                name="by",
                schema={"type": "string", "enum": ["hour"]},
                description="A row for each hour of the day (UTC).",
            ),
            Parameter(
                name="answer",
                schema={**COUNT, "maximum": ranking.MAX_TOKENS},
                description="Limit an answer of so many tokens, estimated for each request.",
            ),
            limit("A limit in seconds in place of the uses: on the answer, else on the first token."),
            Parameter(
                name="min-speed",
                schema={"type": "number", "exclusiveMinimum": 0},
                description="The tokens per second that each request must reach.",
            ),
            *SELECTION,
        ),
    ),
    Endpoint(
        path="/v1/diff",
        summary="Regions against a baseline, target by target.",
        answer=DifferentialList,
        query=_differentials,
        parameters=(
            Parameter(name="baseline", schema=TEXT, description="The region to compare with; the plan's if missing."),
            Parameter(name="against", schema=SEVERAL, description="Regions to compare; all others if missing."),
            METRIC,
            Parameter(
                name="sort",
                schema={"type": "string", "enum": list(SORTS)},
                description="The order of the rows of a region; difference if missing.",
            ),
            Parameter(
                name="only",
                schema={"type": "string", "enum": list(_ONLY)},
                description="Only this decision; decided means all but undecided.",
            ),
            Parameter(
                name="explain",
                schema={"type": "boolean"},
                description="Also the parts of each difference in the time to the first token by phase.",
            ),
            TARGET,
            *WINDOW,
            FORMAT,
        ),
    ),
    Endpoint(
        path="/v1/region-costs",
        summary="The fastest region of each provider, and the latency that the others add.",
        answer=RegionCostList,
        query=lambda context, request: differentials.region_costs(
            context, request.selection, metric=request.text("metric")
        ),
        parameters=(METRIC, *SELECTION),
    ),
    Endpoint(
        path="/v1/tiers",
        summary="Targets ranked within their price tier, per region.",
        answer=TierList,
        query=lambda context, request: ranking.price_tiers(context, request.selection),
        parameters=SELECTION,
    ),
    Endpoint(
        path="/v1/simulations",
        summary="Other policies replayed on the recorded rounds of interchangeable targets.",
        answer=SimulationList,
        query=lambda context, request: simulations.simulations(
            context, request.selection, policies=request.texts("policy")
        ),
        parameters=(
            Parameter(
                name="policy",
                schema=SEVERAL,
                description="static:TARGET, nearest, routed, race:K or fallback:MILLISECONDS; one of each if missing.",
            ),
            *SELECTION,
        ),
    ),
    Endpoint(
        path="/v1/series",
        summary="Values and outcomes over time, per target and region.",
        answer=SeriesList,
        query=lambda context, request: series.series(
            context,
            request.selection,
            metric=request.text("metric"),
            points=request.count("points"),
            limit_us=request.seconds_us("limit"),
            bins=request.count("bins"),
        ),
        parameters=(
            METRIC,
            limit("A limit on the metric, a latency, in seconds: points have their goodput."),
            points(usual=MAX_POINTS),
            Parameter(
                name="bins",
                schema={**COUNT, "maximum": MAX_BINS},
                description=f"Maximum number of bins of the distribution, {FEWEST_BINS} or more; none if missing.",
            ),
            *SELECTION,
        ),
    ),
    Endpoint(
        path="/v1/samples",
        summary="Single probes, the newest ones.",
        answer=SampleList,
        query=lambda context, request: samples.samples(context, request.selection, limit=_limit_of(request)),
        parameters=(
            Parameter(
                name="limit",
                schema={"type": "integer", "minimum": 1, "maximum": _MAX_SAMPLES},
                description=f"Number of samples; {_USUAL_SAMPLES} if missing.",
            ),
            *SELECTION,
        ),
    ),
    Endpoint(
        path="/v1/samples/{id}",
        summary="One probe, with all its phases.",
        answer=SampleList,
        query=lambda context, request: samples.one_sample(context, request.path["id"]),
        parameters=(FORMAT,),
    ),
    Endpoint(
        path="/v1/coverage",
        summary="Planned and recorded rounds per vantage and target, with their outcomes.",
        answer=CoverageList,
        query=lambda context, request: fleet.coverage(context, request.selection),
        parameters=SELECTION,
    ),
    Endpoint(
        path="/v1/spend",
        summary="Today's spend (UTC) per vantage and provider, with its forecast and the budget.",
        answer=SpendList,
        query=lambda context, request: fleet.spend(context, request.selection),
        parameters=(TARGET, REGION, FORMAT),
    ),
    Endpoint(
        path="/v1/incidents",
        summary="Targets that fail or are throttled: open incidents, and those of the window that are over.",
        answer=IncidentList,
        query=lambda context, request: incidents.incidents(context, request.window, past=request.flag("past"), id=0),
        parameters=(
            Parameter(name="past", schema={"type": "boolean"}, description="Also those of the window that are over."),
            *WINDOW,
            FORMAT,
        ),
    ),
    Endpoint(
        path="/v1/incidents/{id}",
        summary="One incident.",
        answer=IncidentList,
        query=_incident,
        parameters=(FORMAT,),
    ),
    Endpoint(
        path="/v1/alerts",
        summary="The alerts raised in the window, with their delivery.",
        answer=AlertList,
        query=lambda context, request: incidents.alerts(context, request.window),
        parameters=(*WINDOW, FORMAT),
    ),
    Endpoint(
        path="/v1/drift",
        summary="Lasting changes of targets per region and metric.",
        answer=DriftList,
        query=lambda context, request: incidents.drift_events(context, request.selection),
        parameters=SELECTION,
    ),
    Endpoint(
        path="/v1/rate-limits",
        summary="Rate limits as response headers state them, with their history and a forecast of exhaustion.",
        answer=RateLimitList,
        query=lambda context, request: rate_limits.rate_limits(
            context, request.selection, points=request.count("points")
        ),
        parameters=(
            points(usual=rate_limits.USUAL_POINTS),
            *SELECTION,
        ),
    ),
    Endpoint(
        path="/v1/route-events",
        summary="Changes of route tables, with the weights of the members since then.",
        answer=RouteEventList,
        query=lambda context, request: routes.events(context, request.selection, route=request.text("route")),
        parameters=(
            Parameter(name="route", schema=TEXT, description="One route; all if missing."),
            REGION,
            *WINDOW,
            FORMAT,
        ),
    ),
    Endpoint(
        path="/v1/explain/{client_region}/{route}",
        summary="The explanation of a table, replayed from its inputs.",
        answer=Explanation,
        query=lambda context, request: routes.explanation(
            context, request.path["client_region"], request.path["route"], generation=request.count("generation")
        ),
        parameters=(
            Parameter(
                name="generation", schema=COUNT, description="The generation of the table; the newest if 0 or missing."
            ),
            FORMAT,
        ),
    ),
)
"""Each path has the answer of a method over gRPC, and the document that a command prints with `--output json`."""

MIN_SHARED_S = 1.0
"""How long an answer is shared at least, in seconds, if its callers accept that."""

PAGE_AGE_S = 60.0
"""The age of an answer that pages accept, in seconds."""

_SHARED_SHARE = 20
_MAX_ENTRIES = 256
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=([0-9]{1,6})(?:$|[\s,])")


@dataclass(slots=True)
class _Entry(Generic[Answer]):
    """A query that was begun at a time of the loop, and how long it took; `None` while it runs."""

    task: "asyncio.Task[Answer]"
    began_s: float
    took_s: float | None = None

    def age_s(self, now_s: float) -> float:
        """Return the age of the answer, in seconds; that of a query that runs is 0."""
        return 0.0 if self.took_s is None else now_s - self.began_s

    @property
    def lasts_s(self) -> float:
        """How long the answer is shared, in seconds."""
        return max(MIN_SHARED_S, _SHARED_SHARE * (self.took_s or 0.0))


class SharedAnswers(Generic[Answer]):
    """The newest answers by their questions."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry[Answer]] = OrderedDict()

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[Answer]], *, max_age_s: float
    ) -> tuple[Answer, float]:
        """Return the answer to a question, and its age in seconds, at most `max_age_s`. Raises as `make`."""
        if not max_age_s:
            return await make(), 0.0
        now_s = asyncio.get_running_loop().time()
        entry = self._entries.get(key)
        if entry is None or entry.age_s(now_s) > min(max_age_s, entry.lasts_s):
            entry = self._begin(key, make, now_s)
        # The query goes on for the others if this caller disconnects.
        answer = await asyncio.shield(entry.task)
        return answer, max(0.0, now_s - entry.began_s)

    def _begin(self, key: Hashable, make: Callable[[], Awaitable[Answer]], now_s: float) -> _Entry[Answer]:
        entry = _Entry(asyncio.ensure_future(_made(make)), now_s)
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)

        def end(task: "asyncio.Task[Answer]") -> None:
            entry.took_s = asyncio.get_running_loop().time() - entry.began_s
            if (task.cancelled() or task.exception() is not None) and self._entries.get(key) is entry:
                del self._entries[key]

        entry.task.add_done_callback(end)
        return entry


class QueryRoutes:
    """Handlers of `ENDPOINTS`. As over gRPC, a caller has at most 8 queries at once, all callers 64; others wait.
    Callers who accept answers of some age share them.
    """

    def __init__(self, query_context: QueryContext) -> None:
        self._query_context = query_context
        self._slots = CallSlots(total=64, each=8)
        self._shared = SharedAnswers[EncodedDocument]()

    def handler(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a path."""

        async def handle(request: Request) -> Response:
            asked = endpoint.parse(
                request.scope["query_string"], path=request.path_params, now_at=self._query_context.clock()
            )
            encode = encode_compressed if accepts_gzip(request.headers) else encode_document
            found, age_s = await self._shared.get(
                (endpoint.path, *sorted(request.path_params.items()), request.scope["query_string"], encode),
                partial(self._document, endpoint, asked, encode, caller=request.state.principal.key),
                max_age_s=max_age_s(request.headers),
            )
            etag = responses.weak(found.etag)
            headers = {"Cache-Control": "no-cache", "ETag": etag, **VARY}
            if age_s:
                headers["Age"] = str(ceil(age_s))
            if responses.is_current(responses.none_match(request.headers), found.etag):
                return Response(status_code=304, headers=headers)
            return JsonResponse(found.content, headers=headers, is_compressed=found.is_compressed)

        return handle

    async def _document(
        self,
        endpoint: Endpoint,
        asked: ParsedRequest,
        encode: Callable[[object], EncodedDocument],
        *,
        caller: str | None,
    ) -> EncodedDocument:
        async with self._slots.hold(caller):
            answer = await endpoint.query(self._query_context, asked)
            return await asyncio.to_thread(encode, answer)


async def _made(make: Callable[[], Awaitable[Answer]]) -> Answer:
    return await make()


def max_age_s(headers: Headers) -> float:
    """Return the age that a request accepts, in seconds, by its Cache-Control header; 0 without one. A page's requests
    that a browser sends before the page's own script have none, and accept what those of the script do.
    """
    found = _MAX_AGE.search(headers.get("cache-control", ""))
    if found:
        return float(found[1])
    is_of_page = headers.get("sec-fetch-site") == "same-origin" and "cache-control" not in headers
    return PAGE_AGE_S if is_of_page else 0.0
