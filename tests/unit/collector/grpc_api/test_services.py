"""The service for agents, and the counters of its pushes."""

from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from isochrone_collector.grpc_api.responses import refuse
from isochrone_collector.grpc_api.services import BOUNDS_US, FleetService, PushMetrics
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import Batch, Heartbeat, Vantage
from isochrone_wire.operations import Receipt
from isochrone_wire.v1 import fleet_pb2


class Aborted(Exception):  # noqa: N818  # reads as what happened
    """Raised by gRPC when a call is aborted."""


@dataclass(slots=True)
class Call:
    status: grpc.StatusCode | None = None
    details: str = ""

    def invocation_metadata(self) -> tuple[()]:
        """No credential."""
        return ()

    async def abort(self, status: grpc.StatusCode, details: str, _trailing: Any) -> None:
        self.status, self.details = status, details
        raise Aborted


class OpenAuthenticator:
    async def require_vantage(self, _metadata: Any, _vantage: Vantage) -> None:
        """Accept."""


class Ingest:
    async def push(self, raw_push: RawPush, received_at: int) -> Receipt:
        raw_push.batch(received_at)
        return Receipt()


async def test_a_heartbeat_that_cannot_be_decoded_is_an_invalid_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """INVALID_ARGUMENT with the reason, not UNKNOWN, which an agent would retry for ever."""
    honest = codec.decode

    def decode(cls: Any, message: Any) -> Any:
        if cls is Heartbeat:
            raise CodecError("Heartbeat.mood: 7")
        return honest(cls, message)

    request = codec.encode(Batch(vantage=Vantage(name="us-1", region="us-east-2"), epoch=7, seq=0))
    monkeypatch.setattr(codec, "decode", decode)
    unused: Any = None
    authenticator: Any = OpenAuthenticator()
    ingest: Any = Ingest()
    service, call = (
        FleetService(
            ingest=ingest, plans=unused, enrolment=unused, authenticator=authenticator, clock=lambda: 1_000_000
        ),
        Call(),
    )
    with pytest.raises(CodecError) as raised:
        await service.push(RawPush(request.SerializeToString()), call)
    with pytest.raises(Aborted):
        await refuse(call, raised.value)
    assert (call.status, call.details) == (grpc.StatusCode.INVALID_ARGUMENT, "Heartbeat.mood: 7")


NOW_AT = 9_000_000


@pytest.fixture
def metrics() -> PushMetrics:
    return PushMetrics(clock=lambda: NOW_AT)


def value_of(metrics: PushMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"isochrone_{name}", labels)


def receipt(*, stored: int, duplicate: int, reasons: list[str]) -> fleet_pb2.Receipt:
    rejections = [fleet_pb2.Rejection(reason=reason) for reason in reasons]
    return fleet_pb2.Receipt(stored=stored, duplicate=duplicate, rejected=len(rejections), rejections=rejections)


@pytest.mark.parametrize(("took_us", "first"), [(0, 0), (1_000, 0), (1_001, 1), (10_000_000, 11), (10_000_001, 12)])
def test_a_duration_falls_into_one_class(metrics: PushMetrics, took_us: int, first: int) -> None:
    """Bounds are inclusive, and a longer duration than the last bound counts in the class without one."""
    metrics.count_push("OK", took_us=took_us)
    bounds = [*(str(us / 1_000_000) for us in BOUNDS_US), "+Inf"]
    counts = [value_of(metrics, "push_duration_seconds_bucket", le=bound) for bound in bounds]
    assert counts == [int(place >= first) for place in range(len(bounds))]
    assert value_of(metrics, "push_duration_seconds_sum") == took_us / 1_000_000
    assert value_of(metrics, "pushes_total", status="OK") == 1


@pytest.mark.parametrize(
    ("stored", "duplicate", "reasons", "new_and_known"),
    [
        (3, 0, [], (1, 0)),
        (0, 3, [], (0, 1)),
        (0, 0, ["unknown_target: 7"], (1, 0)),
        (0, 2, ["unknown_target: 7"], (0, 1)),
        (0, 0, [], (0, 0)),
    ],
)
def test_a_batch_is_new_or_known(
    metrics: PushMetrics, stored: int, duplicate: int, reasons: list[str], new_and_known: tuple[int, int]
) -> None:
    """A batch of duplicates was known to the ledger, another one was new, and a heartbeat is no batch."""
    metrics.count_receipt("us-1", receipt(stored=stored, duplicate=duplicate, reasons=reasons))
    assert new_and_known == tuple(value_of(metrics, "ledger_claims_total", result=name) for name in ("new", "known"))
    assert value_of(metrics, "samples_stored_total") == stored
    assert value_of(metrics, "samples_duplicate_total") == duplicate
    assert value_of(metrics, "vantage_last_push_timestamp_seconds", vantage="us-1") == 9.0


def test_a_goodbye_has_the_instant_of_the_last_push(metrics: PushMetrics) -> None:
    """Only the push of an agent that stops sets the instant of its stop."""
    heartbeat = receipt(stored=0, duplicate=0, reasons=[])
    metrics.count_receipt("us-1", heartbeat)
    assert value_of(metrics, "vantage_stopped_timestamp_seconds", vantage="us-1") is None
    metrics.count_receipt("us-1", heartbeat, stopped=True)
    assert value_of(metrics, "vantage_stopped_timestamp_seconds", vantage="us-1") == 9.0


def test_reasons_are_counted_by_name(metrics: PushMetrics) -> None:
    """Figures in a reason do not make a series of their own."""
    reasons = ["out_of_bounds: ttft_us = -5 (0 to 9)", "out_of_bounds: e2e_us = -7 (0 to 9)", "unknown_target: 3"]
    metrics.count_receipt("us-1", receipt(stored=0, duplicate=0, reasons=reasons))
    assert value_of(metrics, "samples_rejected_total", reason="out_of_bounds") == 2
    assert value_of(metrics, "samples_rejected_total", reason="unknown_target") == 1


def test_nothing_but_the_documented_series_is_exposed(metrics: PushMetrics) -> None:
    """The library's own `…_created` series are off, and both results of the ledger start at 0."""
    metrics.count_push("OK", took_us=5)
    names = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    assert names == {
        "isochrone_samples_stored_total",
        "isochrone_samples_duplicate_total",
        "isochrone_pushes_total",
        "isochrone_push_duration_seconds_bucket",
        "isochrone_push_duration_seconds_count",
        "isochrone_push_duration_seconds_sum",
        "isochrone_ledger_claims_total",
    }
