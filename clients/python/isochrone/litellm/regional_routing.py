"""The callback of LiteLLM. It fails a request only if no member of its route can take it; what it cannot route
otherwise, it leaves to LiteLLM, and counts that.

LiteLLM asks it twice for each attempt: first for the deployments among which it may choose, then with the chosen one.
Only then the request counts as routed, if LiteLLM has followed.
"""

import logging
import random
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.utils import ProviderConfigManager
from prometheus_client import Counter, Gauge

from isochrone.litellm import requests
from isochrone.litellm.requests import chosen_deployments, target_of
from isochrone.routing.attempts import Cooldowns, Failure, failure_of, refusal_text
from isochrone.routing.effectiveness import followed
from isochrone.routing.engine import retry_after_s
from isochrone.routing.routes import DEFAULT_CACHE_FOLDER, Routes
from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RouteState, RouteTable

REQUESTS = Counter(
    "isochrone_litellm_requests",
    "Requests by outcome: sent by a table or the static order, not followed, or left to LiteLLM for the reason named.",
    ("client_region", "route", "outcome"),
)
FAILOVERS = Counter(
    "isochrone_litellm_failovers", "Further attempts of requests, after a failure.", ("client_region", "route")
)
EVENTS = Counter(
    "isochrone_litellm_table_events",
    "What happened to the stream of tables: tables, tables_ignored, disconnected, refused, cache_failed.",
    ("client_region", "event"),
)
# With several workers, the newest value of all of them.
GENERATION = Gauge(
    "isochrone_litellm_table_generation",
    "Generation of the table in use.",
    ("client_region", "route"),
    multiprocess_mode="mostrecent",
)
STALE = Gauge(
    "isochrone_litellm_table_stale_timestamp_seconds",
    "When the table in use expires.",
    ("client_region", "route"),
    multiprocess_mode="mostrecent",
)
_LOG = logging.getLogger("isochrone.litellm")
RESPONSES = "openai-responses"
Deployment = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Draw:
    """The deployments that an attempt is to go to, and the share of the weights that it follows then."""

    table: RouteTable
    deployments: frozenset[str]
    share: float | None


@dataclass(eq=False, slots=True)
class _Attempts:
    """The attempts of a request: the deployments that have failed, and the draw for the attempt that begins, which is
    `noted` when LiteLLM has chosen. All have the same random `number`, so that members follow the drawn one by rank.
    """

    trace_id: object
    failed: set[str] = field(default_factory=set)
    draw: _Draw | None = None
    is_noted: bool = False
    number: float = field(default_factory=random.random)


# LiteLLM makes all attempts in the task of the request.
_attempts: ContextVar[_Attempts | None] = ContextVar("attempts", default=None)


class RegionalRouting(CustomLogger):  # type: ignore[misc]  # LiteLLM is not installed where types are checked
    """Sends requests for a model to its healthy deployments by the route table of that name for the caller's region.

    `url` is the HTTP address of the collector, `token` the credential of a reader. The region of a request is the
    header `region_header`, `client_region` in the metadata of the request or of its key, or `default_region`. Tables
    are followed for that region and for `regions`, and requests of other regions are left alone. `deployments` has
    targets by the id of a deployment whose id is not its target. `cache_folder`, `ssl_context` and `proxy` are those of
    `Routes`.

    A synchronous call of LiteLLM's `Router` does not ask callbacks.
    """

    def __init__(
        self,
        url: str,
        *,
        default_region: str | None = None,
        regions: Collection[str] = (),
        region_header: str = "x-client-region",
        token: str | None = None,
        deployments: Mapping[str, str] | None = None,
        cache_folder: str | Path | None = DEFAULT_CACHE_FOLDER,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
    ) -> None:
        super().__init__()
        followed = dict.fromkeys([*([default_region] if default_region else []), *regions])
        if not followed:
            raise ValueError("no region to follow: name a `default_region`, or `regions` that callers may name")
        self._default_region = default_region
        self._region_header = region_header
        self._named = dict(deployments or {})
        self._lock = threading.Lock()
        self._routed: set[str] = set()
        self._known: defaultdict[str, set[str]] = defaultdict(set)
        self._cooldowns = Cooldowns()
        self._logged_s: dict[str, float] = {}
        self._routes = {
            region: Routes(
                url,
                region,
                token=token,
                cache_folder=cache_folder,
                ssl_context=ssl_context,
                proxy=proxy,
                on_event=lambda event, region=region: EVENTS.labels(region, event).inc(),  # type: ignore[misc]  # its default
                metrics=True,
            )
            for region in followed
        }
        for routes in self._routes.values():
            routes.wait(0)  # starts to follow

    def close(self) -> None:
        """Stop following the tables."""
        for routes in self._routes.values():
            routes.close()

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Deployment],
        messages: object = None,  # noqa: ARG002  # LiteLLM passes it
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: object = None,  # noqa: ARG002  # as above
    ) -> list[Deployment]:
        """Return the deployments among which LiteLLM is to choose; called for each attempt. Raises LiteLLM's
        `BadRequestError` if no member speaks the API of the request.
        """
        request = {} if request_kwargs is None else request_kwargs
        attempts, trace_id = _attempts.get(), request.get("litellm_trace_id")
        if attempts is None or trace_id is None or attempts.trace_id != trace_id:
            _attempts.set(attempts := _Attempts(trace_id))
        attempts.failed |= requests.failed_deployments(request)
        attempts.draw, attempts.is_noted = None, False
        try:
            return await self._chosen(model, healthy_deployments, request, attempts)
        except litellm.BadRequestError:
            raise
        except Exception as error:  # noqa: BLE001  # a request matters more than its order
            self._log(f"requests are left to LiteLLM: {error!r}", key=repr(type(error)))
            return _left_alone(healthy_deployments, "error")

    async def async_pre_call_check(
        self,
        deployment: Deployment,
        parent_otel_span: object = None,  # noqa: ARG002  # LiteLLM passes it
    ) -> None:
        """Note the deployment that LiteLLM has chosen."""
        attempts = _attempts.get()
        if attempts is None or attempts.draw is None or attempts.is_noted:
            return
        draw, attempts.is_noted = attempts.draw, True
        table, is_followed = draw.table, requests.deployment_of(deployment) in draw.deployments
        labels = (table.client_region, table.route)
        if attempts.failed:
            FAILOVERS.labels(*labels).inc()
            return
        outcome = "static_order" if table.state is RouteState.INSUFFICIENT_DATA else "table"
        REQUESTS.labels(*labels, outcome if is_followed else "not_followed").inc()
        GENERATION.labels(*labels).set(table.generation)
        STALE.labels(*labels).set(table.stale_until_at / SECOND_US)
        share = draw.share if is_followed else 0.0
        reason = "deployments of members are missing, or a filter or another callback of LiteLLM chooses among them"
        self._routes[table.client_region].note_followed(table.route, share, reason)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, *_: object, **__: object
    ) -> None:
        """Note the failure of a deployment, which rests for a while."""
        deployment, status = requests.deployment_of(request_data), getattr(exception, "status_code", None)
        if deployment is None or deployment not in self._routed:
            return
        if attempts := _attempts.get():
            attempts.failed.add(deployment)
        if not isinstance(status, int):
            return
        failure, asked_s = failure_of(status), None
        if failure is None:  # the caller's own error
            self._succeeded(deployment)
            return
        if failure is Failure.REFUSED and attempts and attempts.draw:
            self._warn_of_refusal(attempts.draw.table, deployment, status)
        is_throttled = failure is Failure.THROTTLED
        if is_throttled:
            response = getattr(exception, "response", None)
            headers = getattr(exception, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
            asked_s = retry_after_s([(str(name).encode(), str(value).encode()) for name, value in headers.items()])
        now_s, draw = time.monotonic(), random.random()  # noqa: S311  # no secret
        with self._lock:
            self._cooldowns.fail(deployment, is_throttled=is_throttled, retry_after_s=asked_s, now_s=now_s, draw=draw)

    async def async_log_success_event(
        self,
        kwargs: Mapping[str, Any],
        response_obj: object,  # noqa: ARG002  # LiteLLM passes it by name
        start_time: object,  # noqa: ARG002  # as above
        end_time: object,  # noqa: ARG002  # as above
    ) -> None:
        """Note the success of a deployment, which ends its rest."""
        deployment = requests.deployment_of(kwargs.get("litellm_params", {}))
        if deployment is not None:
            self._succeeded(deployment)

    def _succeeded(self, deployment: str) -> None:
        with self._lock:
            self._cooldowns.succeed(deployment)

    def _warn_of_refusal(self, table: RouteTable, deployment: str, status: int) -> None:
        target = target_of(deployment, [entry.target for entry in table.entries], named=self._named)
        for entry in table.entries:
            if entry.target == target:
                self._routes[table.client_region].warn(refusal_text(table.route, entry, status))

    async def _chosen(
        self, model: str, deployments: list[Deployment], request: dict[str, Any], attempts: _Attempts
    ) -> list[Deployment]:
        if requests.is_for_one_provider(request):
            return _left_alone(deployments, "provider_resource")
        region = requests.client_region(request, header=self._region_header, default=self._default_region)
        if region not in self._routes:
            self._log(f"no tables are followed for the region {region!r}: add it to `regions`", key="unknown region")
            return _left_alone(deployments, "unknown_region" if region else "no_region")
        routes = self._routes[region]
        table = await routes.first_table(model)
        if table is None:
            return _left_alone(deployments, "unknown_route" if routes.wait(0) else "no_table", region=region)
        if requests.is_for_responses(request):
            deployments = self._that_respond(table, deployments)
        draw = self._drawn(table, [_id(one) for one in deployments], attempts)
        if not draw.deployments:
            self._require_members(table, [_id(one) for one in deployments])
            return _left_alone(deployments, "no_member", region=region, route=table.route)
        attempts.draw = draw
        # The order of a configured deployment, to which LiteLLM falls back.
        request.pop("_target_order", None)
        return [one for one in deployments if _id(one) in draw.deployments]

    def _drawn(self, table: RouteTable, ids: Sequence[str], attempts: _Attempts) -> _Draw:
        names, now_s = [entry.target for entry in table.entries], time.monotonic()
        target = {one: target_of(one, names, named=self._named) for one in ids}
        with self._lock:
            self._routed.update(ids)
            known = self._known[table.route]
            known.update(name for name in target.values() if name)
            resting = {*self._cooldowns.throttled(now_s), *self._cooldowns.failing(now_s)}
        chosen = chosen_deployments(
            table.entries,
            target,
            tried=attempts.failed,
            resting=resting,
            draw=attempts.number,
        )
        # LiteLLM lets deployments rest, too: those that it leaves out.
        ready = {name for one, name in target.items() if one not in resting}
        share = followed(table.entries, usable=known, resting=known - ready)
        return _Draw(table, chosen, share)

    def _that_respond(self, table: RouteTable, deployments: list[Deployment]) -> list[Deployment]:
        """The deployments but those of members that do not speak the Responses API, unless LiteLLM translates it for
        them. Raises `BadRequestError` if all members are such.
        """
        dialects = {entry.target: entry.dialect for entry in table.entries}
        members = {_id(one): target_of(_id(one), dialects, named=self._named) for one in deployments}
        unable = {
            _id(one)
            for one in deployments
            if (target := members[_id(one)])
            and dialects[target] != RESPONSES
            and not _is_translated(one["litellm_params"])
        }
        if unable and unable == {one for one, target in members.items() if target}:
            REQUESTS.labels(table.client_region, table.route, "dialect").inc()
            spoken = ", ".join(f"{target} speaks {dialect}" for target, dialect in dialects.items())
            raise litellm.BadRequestError(
                f"isochrone: no member of the route {table.route!r} can take a request of the Responses API: {spoken}; "
                "send chat completions",
                model=table.route,
                llm_provider="",
            )
        return [one for one in deployments if _id(one) not in unable]

    def _require_members(self, table: RouteTable, ids: Sequence[str]) -> None:
        """Log an error if none of the deployments can ever be a member."""
        targets = list(dict.fromkeys([*(entry.target for entry in table.entries), *table.static_order]))
        if ids and not any(target_of(one, targets, named=self._named) for one in ids):
            self._log(
                f"model {table.route!r} is a route, but none of its deployments {', '.join(map(repr, ids))} is one of "
                f"the route's members {', '.join(map(repr, targets))}: set `model_info.id` of each deployment to its "
                "member, or name it in `callback_settings.isochrone.deployments`",
                key=f"no member of {table.route} from {table.client_region}",
            )

    def _log(self, text: str, *, key: str) -> None:
        """Log an error, once a minute for each key."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._logged_s.get(key, 0.0):
                return
            self._logged_s[key] = now_s + 60.0
        _LOG.error("isochrone: %s", text)


def _left_alone(deployments: list[Deployment], reason: str, *, region: str = "", route: str = "") -> list[Deployment]:
    """The deployments as they are. Names that callers may invent are no labels."""
    REQUESTS.labels(region, route, reason).inc()
    return deployments


def _is_translated(parameters: Mapping[str, Any]) -> bool:
    """Return whether LiteLLM sends a request of the Responses API to this deployment as chat completions."""
    model, provider, _, api_base = litellm.get_llm_provider(
        model=parameters["model"],
        custom_llm_provider=parameters.get("custom_llm_provider"),
        api_base=parameters.get("api_base"),
    )
    own = ProviderConfigManager.get_provider_responses_api_config(provider=provider, model=model, api_base=api_base)
    return own is None or bool(parameters.get("use_chat_completions_api"))


def _id(deployment: Deployment) -> str:
    return str(deployment["model_info"]["id"])
