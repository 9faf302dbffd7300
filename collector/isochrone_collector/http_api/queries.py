"""The paths that are answered from the database, and their handler.

Answers may be shared by callers who ask the same at nearly the same time: the query runs once for all of them. This is
for callers that accept an answer of some age and state it (`Cache-Control: max-age=60`), and open pages. All others get
an answer of their own. However slow a query is, sharing leaves it a twentieth of the time.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Generic, TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isochrone_collector.analysis.time_series import FEWEST_BINS, MAX_BINS, MAX_POINTS
from isochrone_collector.auth.limits import CallSlots
from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.http_api import responses
from isochrone_collector.http_api.requests import (
    COUNT,
    FILTER,
    FLAG,
    FORMAT,
    METRIC,
    REGION,
    ROUTE,
    SELECTION,
    SEVERAL,
    TARGET,
    TEXT,
    WINDOW,
    Endpoint,
    Parameter,
    count,
    enum,
    limit,
    member,
    parsed,
    points,
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
from isochrone_wire.answers import Decision, DifferentialList, Order, Selection, Window
from isochrone_wire.fleet import SampleList, TargetList
from isochrone_wire.insights import IncidentList
from isochrone_wire.model import DAY_US
from isochrone_wire.operations import parse_incident_name
from isochrone_wire.queries.differential_order import DECIDED, DEFAULT_SORT, SORTS, select_rows
from isochrone_wire.text import shortened

Answer = TypeVar("Answer")
_USUAL_SAMPLES, _MAX_SAMPLES = 20, 1_000
_MAX_SHOWN = 80
_ONLY = (DECIDED, *Decision)


async def _targets(context: QueryContext) -> TargetList:
    return context.targets()


async def _differentials(
    context: QueryContext,
    selection: Selection,
    *,
    sort: str | None,
    only: str | None,
    **asked: Any,  # noqa: ANN401  # the arguments of the query
) -> DifferentialList:
    answer = await differentials.differentials(context, selection, **asked)
    return replace(answer, differentials=select_rows(answer, sort=sort or DEFAULT_SORT, only=only))


async def _samples(context: QueryContext, selection: Selection, *, limit: int, matching: str) -> SampleList:
    if limit > _MAX_SAMPLES:
        raise BadRequest(f"limit={limit}: at most {_MAX_SAMPLES}", hint="`isochrone samples export` writes all samples")
    return await samples.samples(context, selection, limit=limit or _USUAL_SAMPLES, matching=matching)


async def _incidents(context: QueryContext, window: Window, *, past: bool) -> IncidentList:
    return await incidents.incidents(context, window, past=past, id=0)


async def _incident(context: QueryContext, id: str) -> IncidentList:  # noqa: A002  # the name in the path
    incident_id = parse_incident_name(id)
    if incident_id is None:
        raise UnknownName(f"{shortened(id, _MAX_SHOWN)!r} is not the id of an incident")
    now_at = context.clock()
    return await incidents.incidents(
        context, Window(from_at=now_at - DAY_US, until_at=now_at), past=True, id=incident_id
    )


def query(path: str, summary: str, work: Callable[..., Awaitable[Any]], *parameters: Parameter) -> Endpoint:
    """Return the endpoint of a query. Its tag is weak: two answers may be equal but for the instant of the request."""
    return Endpoint(
        path=path,
        summary=summary,
        work=work,
        parameters=parameters,
        request_headers={"If-None-Match": "The ETag the client has."},
        headers={"ETag": {"schema": TEXT, "description": "Changes with the answer."}},
        other={"304": "The answer of If-None-Match is current."},
    )


ENDPOINTS = (
    query("/v1/targets", "The targets of the plan in force, and its baseline region.", _targets, FORMAT),
    query("/v1/vantages", "The vantages of all regions, with their state.", fleet.vantage_list, FORMAT),
    query(
        "/v1/leaderboard",
        "Targets ranked within each region.",
        ranking.leaderboard,
        Parameter("by", enum(Order), "The order; ttft if missing.", "order", member(Order, Order.TTFT)),
        Parameter(
            "quantity",
            {"type": "array", "items": enum(ranking.NEEDED)},
            "Quantities that are needed: others may be null. All if missing.",
            "needed",
        ),
        *SELECTION,
    ),
    query(
        "/v1/slo",
        "Goodput under the latency limits of uses, per target and region, with a decision.",
        ranking.latency_targets,
        Parameter("use", SEVERAL, "Uses, such as voice or chat; all if missing.", "uses"),
        Parameter("by", enum(["hour"]), "A row for each hour of the day (UTC)."),
        Parameter(
            "answer",
            {**COUNT, "maximum": ranking.MAX_TOKENS},
            "Limit an answer of so many tokens, estimated for each request.",
            "answer_tokens",
        ),
        limit("A limit in seconds in place of the uses: on the answer, else on the first token."),
        Parameter(
            "min-speed",
            {"type": "number", "exclusiveMinimum": 0},
            "The tokens per second that each request must reach.",
            "min_tokens_per_second",
        ),
        *SELECTION,
    ),
    query(
        "/v1/diff",
        "Regions against a baseline, target by target.",
        _differentials,
        Parameter("baseline", TEXT, "The region to compare with; the plan's if missing."),
        Parameter("against", SEVERAL, "Regions to compare; all others if missing."),
        METRIC,
        Parameter("sort", enum(SORTS), "The order of the rows of a region; difference if missing."),
        Parameter("only", enum(_ONLY), "Only this decision; decided means all but undecided."),
        Parameter("explain", FLAG, "Also the parts of each difference in the time to the first token by phase."),
        TARGET,
        *WINDOW,
        FORMAT,
    ),
    query(
        "/v1/region-costs",
        "The fastest region of each provider, and the latency that the others add.",
        differentials.region_costs,
        METRIC,
        *SELECTION,
    ),
    query("/v1/tiers", "Targets ranked within their price tier, per region.", ranking.price_tiers, *SELECTION),
    query(
        "/v1/simulations",
        "Other policies replayed on the recorded rounds of interchangeable targets.",
        simulations.simulations,
        Parameter(
            "policy",
            SEVERAL,
            "static:TARGET, nearest, routed, race:K or fallback:MILLISECONDS; one of each if missing.",
            "policies",
        ),
        *SELECTION,
    ),
    query(
        "/v1/series",
        "Values and outcomes over time, per target and region.",
        series.series,
        METRIC,
        limit("A limit on the metric, a latency, in seconds: points have their goodput."),
        points(usual=MAX_POINTS),
        Parameter(
            "bins",
            {**COUNT, "maximum": MAX_BINS},
            f"Maximum number of bins of the distribution, {FEWEST_BINS} or more; none if missing.",
        ),
        *SELECTION,
    ),
    query(
        "/v1/samples",
        "Single probes, the newest ones.",
        _samples,
        Parameter(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": _MAX_SAMPLES},
            f"Number of samples; {_USUAL_SAMPLES} if missing.",
            read=parsed(count),
        ),
        FILTER,
        *SELECTION,
    ),
    query("/v1/samples/{id}", "One probe, with all its phases.", samples.one_sample, FORMAT),
    query(
        "/v1/coverage",
        "Planned and recorded rounds per vantage and target, with their outcomes.",
        fleet.coverage,
        *SELECTION,
    ),
    query(
        "/v1/spend",
        "Today's spend (UTC) per vantage and provider, with its forecast and the budget.",
        fleet.spend,
        TARGET,
        REGION,
        FORMAT,
    ),
    query(
        "/v1/incidents",
        "Targets that fail or are throttled: open incidents, and those of the window that are over.",
        _incidents,
        Parameter("past", FLAG, "Also those of the window that are over."),
        *WINDOW,
        FORMAT,
    ),
    query("/v1/incidents/{id}", "One incident.", _incident, FORMAT),
    query("/v1/alerts", "The alerts raised in the window, with their delivery.", incidents.alerts, *WINDOW, FORMAT),
    query("/v1/drift", "Lasting changes of targets per region and metric.", incidents.drift_events, *SELECTION),
    query(
        "/v1/rate-limits",
        "Rate limits as response headers state them, with their history and a forecast of exhaustion.",
        rate_limits.rate_limits,
        points(usual=rate_limits.USUAL_POINTS),
        *SELECTION,
    ),
    query(
        "/v1/route-events",
        "Changes of route tables, with the weights of the members since then.",
        routes.events,
        ROUTE,
        REGION,
        *WINDOW,
        FORMAT,
    ),
    query(
        "/v1/explain/{client_region}/{route}",
        "The explanation of a table, replayed from its inputs.",
        routes.explanation,
        Parameter("generation", COUNT, "The generation of the table; the newest if 0 or missing."),
        FORMAT,
    ),
)
"""Each path has the document that its command prints with `--output json`."""

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

    def is_shared(self, now_s: float, max_age_s: float) -> bool:
        """Return whether the answer may be shared by callers that accept this age, in seconds."""
        lasts_s = max(MIN_SHARED_S, _SHARED_SHARE * (self.took_s or 0.0))
        return self.took_s is None or now_s - self.began_s <= min(max_age_s, lasts_s)


class SharedAnswers(Generic[Answer]):
    """The newest answers by their questions."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry[Answer]] = OrderedDict()

    async def get(
        self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Answer]], *, max_age_s: float
    ) -> tuple[Answer, float]:
        """Return the answer to a question, and its age in seconds, at most `max_age_s`. Raises as `make`."""
        if not max_age_s:
            return await make(), 0.0
        now_s = asyncio.get_running_loop().time()
        entry = self._entries.get(key)
        if entry is None or not entry.is_shared(now_s, max_age_s):
            entry = _Entry(asyncio.get_running_loop().create_task(make()), now_s)
            self._entries[key] = entry
            self._entries.move_to_end(key)
            if len(self._entries) > _MAX_ENTRIES:
                self._entries.popitem(last=False)

            def end(task: "asyncio.Task[Answer]") -> None:
                entry.took_s = asyncio.get_running_loop().time() - entry.began_s
                if (task.cancelled() or task.exception() is not None) and self._entries.get(key) is entry:
                    del self._entries[key]

            entry.task.add_done_callback(end)
        # The query goes on for the others if this caller disconnects.
        answer = await asyncio.shield(entry.task)
        return answer, max(0.0, now_s - entry.began_s)


class QueryRoutes:
    """Handlers of `ENDPOINTS`. As over gRPC, a caller has at most 8 queries at once, all callers 64; others wait."""

    def __init__(self, query_context: QueryContext) -> None:
        self._query_context = query_context
        self._slots = CallSlots(total=64, each=8)
        self._shared = SharedAnswers[responses.EncodedDocument]()
        self.routes = [Route(one.path, self._handler(one), methods=[one.method]) for one in ENDPOINTS]
        """The routes of `ENDPOINTS`."""

    def _handler(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            arguments = endpoint.arguments(request, now_at=self._query_context.clock())
            encode = (
                responses.encode_compressed if responses.accepts_gzip(request.headers) else responses.encode_document
            )

            async def make() -> responses.EncodedDocument:
                async with self._slots.hold(request.state.principal.key):
                    answer = await endpoint.work(self._query_context, **arguments)
                    return await asyncio.to_thread(encode, answer)

            found, age_s = await self._shared.get(
                (endpoint.path, *sorted(request.path_params.items()), request.scope["query_string"], encode),
                make,
                max_age_s=max_age_s(request.headers),
            )
            return document_response(request, found, age_s, cache_control="no-cache")

        return handle


def document_response(
    request: Request, document: responses.EncodedDocument, age_s: float, *, cache_control: str
) -> Response:
    """Return the response with a document of that age, or with 304 if the client has it."""
    headers = {"Cache-Control": cache_control, "ETag": responses.weak(document.etag), **responses.VARY}
    if age_s:
        headers["Age"] = str(ceil(age_s))
    if responses.is_current(responses.none_match(request.headers), document.etag):
        return Response(status_code=304, headers=headers)
    return responses.JsonResponse(document.content, headers=headers, is_compressed=document.is_compressed)


def max_age_s(headers: Headers) -> float:
    """Return the age, in seconds, that a request accepts; a browser's early requests accept what the page's do."""
    found = _MAX_AGE.search(headers.get("cache-control", ""))
    if found:
        return float(found[1])
    is_of_page = headers.get("sec-fetch-site") == "same-origin" and "cache-control" not in headers
    return PAGE_AGE_S if is_of_page else 0.0
