"""Numbers and texts at the ends of their ranges, in every place of a request that has one, over HTTP and gRPC."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from fixtures.collector import ANSWER_SECONDS, Collector
from isochrone_collector.http_api.app import DESCRIBED
from isochrone_collector.http_api.requests import EVENTS, Endpoint
from isochrone_collector.store.samples import Position, sample_name
from isochrone_wire.v1 import fleet_pb2, operations_pb2

PLAN = "baseline: us\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
LEAST, MOST = -(2**63), 2**63 - 1
NUMBERS = (LEAST, -1, 0, 2**31, MOST - 1, MOST)
IDS = [
    *(
        sample_name(asdict(Position(**{"round_at": 1, name: at})))
        for at in NUMBERS
        for name in ("round_at", "target_id")
    ),
    *(f"{kind}_{digits}" for kind in ("incident", "alert", "silence") for digits in ("f" * 16, "7" * 400, "-1")),
]
TEXTS = ("", "\0", "a\0b", "\x1b[2J", "\u202e", "x" * 5_000, "[", "../..", "%", "\ud7ff", "٣", *IDS)
TIMES = (
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1970-01-01T00:00:00Z"),
    *("999999999w", "0001-01-01..now", "1970-01-01..9999-12-31", "9999-12-31", "9999-W52", "٣h"),
)
VALUES = (*map(str, NUMBERS), str(2**64), "9" * 400, "1e400", "nan", "-0", *TEXTS, *TIMES)
EXTREMES: Mapping[int, tuple[object, ...]] = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: (b"", b"\0", b"\xff" * 100),
    FieldDescriptor.TYPE_INT64: NUMBERS,
    FieldDescriptor.TYPE_SFIXED64: NUMBERS,
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_FIXED64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_DOUBLE: (float("nan"), float("inf"), -1e308, 5e-324),
    FieldDescriptor.TYPE_BOOL: (True,),
}
# Requests that are valid but for the field that is changed.
VALID: Mapping[str, dict[str, Any]] = {
    "Invite": {"name": "n", "role": "vantage", "region": "us", "expires_us": 3_600_000_000},
    "AddSilence": {"targets": ["a"], "duration_us": 3_600_000_000, "reason": "r"},
    "AcknowledgeAlert": {"duration_us": 3_600_000_000, "reason": "r"},
    "ApplyPlan": {"document": PLAN},
    "FetchPlan": {"vantage": {"name": "v", "region": "us"}},
    "Push": {"vantage": {"name": "v", "region": "us"}, "epoch": 1, "seq": 1},
}
OURS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}
ENDPOINTS = [one for one in DESCRIBED if one.method == "GET"]
METHODS = [
    method
    for module in (fleet_pb2, operations_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


@pytest.fixture(scope="module")
def collector(shared_collector: Collector) -> Collector:
    shared_collector.call.apply(PLAN)
    return shared_collector


def questions(endpoint: Endpoint) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Yield a path, parameters and headers for each value in each place of a request."""
    names, plain = re.findall(r"\{(\w+)\}", endpoint.path), {"client_region": "us", "route": "a", "id": IDS[0]}
    for name in names:
        for value in filter(None, VALUES):
            yield endpoint.path.format(**{**plain, name: quote(value, safe="")}), {}, {}
    path = endpoint.path.format(**plain)
    for parameter in endpoint.parameters or ():
        # The other end of a range; `wait` is left out, as it may be followed.
        beside = {"until": {"from": TIMES[2]}, "from": {"until": TIMES[1]}}.get(parameter.name, {})
        for value in VALUES if parameter.name != "wait" else TEXTS:
            yield path, {parameter.name: value, **beside}, {}
    if endpoint.media_type == EVENTS:
        yield from ((path, {}, {"Last-Event-ID": str(number)}) for number in NUMBERS)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.path)
def test_no_value_over_http_is_the_failure_of_the_collector(collector: Collector, endpoint: Endpoint) -> None:
    """Whatever a path, a parameter or an id of an event is, the answer has a status that is not the collector's."""
    failed = []
    for path, parameters, headers in questions(endpoint):
        with collector.call.http.stream("GET", path, params=parameters, headers=headers) as answer:
            if answer.status_code >= 500:
                failed.append((path, parameters, headers, answer.status_code))
    assert failed == []


def changes(message: Descriptor) -> Iterator[dict[str, Any]]:
    """Yield a field with each of its extreme values, at every depth."""
    for field in message.fields:
        if part := field.message_type:
            found: Any = () if part.GetOptions().map_entry else changes(part)
        else:
            found = EXTREMES[field.type] if field.enum_type is None else ()
        for value in found:
            yield {field.name: [value] if field.is_repeated else value}


def merged(valid: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a request with a change in it, at every depth."""
    both = {name: merged(valid[name], value) for name, value in change.items() if isinstance(valid.get(name), dict)}
    return {**valid, **change, **both}


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.name)
def test_no_value_over_grpc_is_the_failure_of_the_collector(collector: Collector, method: MethodDescriptor) -> None:
    """Whatever a field of a request is, the status is not that of a failure of the collector."""
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    call = collector.call.channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    (target,), now_at = collector.call.targets().targets, time.time_ns() // 1_000
    sample = {"target_id": target.id, "round_at": now_at, "dispatched_at": now_at}
    failed = []
    for change in changes(method.input_type):
        asked = merged(VALID.get(method.name, {}), change)
        if method.name == "Push" and "samples" in asked:
            asked["samples"] = [{**sample, **asked["samples"][0]}]
        try:
            call(request(**asked), timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            if error.code() in OURS:
                failed.append((change, error.code(), error.details()))
    assert failed == []
