"""`apply`: ask a running collector to take a plan document, and say what that changes."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import grpc

from isochrone_collector.errors import CollectorError, CollectorUnreachable
from isochrone_wire import codec
from isochrone_wire.habits import CLIENT_OPTIONS
from isochrone_wire.operations import PlanChange
from isochrone_wire.v1 import operations_pb2, operations_pb2_grpc

_TIMEOUT_S = 30.0
_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def apply(collector: str, document: str, *, dry_run: bool, applied_by: str) -> PlanChange:
    """What the collector says to a document. Raises `CollectorUnreachable`, or `CollectorError` when it refuses."""
    request = operations_pb2.ApplyPlanRequest(document=document, dry_run=dry_run, applied_by=applied_by)
    with grpc.insecure_channel(collector, options=CLIENT_OPTIONS) as channel:
        try:
            response = operations_pb2_grpc.OperationsStub(channel).ApplyPlan(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            raise _translated(error, collector) from error
    return codec.decode(PlanChange, response)


def as_json(change: PlanChange) -> str:
    """The change as a JSON object, its keys those of `PlanChange`."""
    return json.dumps(dataclasses.asdict(change), indent=2)


def as_text(change: PlanChange) -> str:
    """The change as lines for a person."""
    return "\n".join(_lines(change))


def _lines(change: PlanChange) -> Iterator[str]:
    if not change.changed:
        yield f"unchanged: plan {change.version} already says this"
    else:
        yield f"plan {change.version}"
    for sign, lines in (("+", change.added), ("-", change.removed), ("~", change.altered)):
        yield from (f"  {sign} {line}" for line in lines)
    spend = "spend unknown: no target has a price"
    if change.usd_per_day is not None:
        spend = f"at most {change.usd_per_day:.2f} USD where prices are known"
    yield f"per vantage and day: {change.requests_per_day} requests, {spend}"


def _translated(error: grpc.RpcError, collector: str) -> CollectorError:
    # Every error of a call is also the call, which knows its status; the stubs cannot say so.
    call: Any = error
    details = call.details()
    if call.code() in _UNREACHABLE:
        return CollectorUnreachable(
            f"no collector at {collector}: {details}", hint="is `isochrone-collector serve` running?"
        )
    return CollectorError(f"the collector refused: {details}")
