"""Asks a collector, and gives values back: the one place on the reading side that sees gRPC and its messages.

with ObservatoryClient("127.0.0.1:4600") as client:
    answer = client.get_leaderboard(Selection(window=window))
"""

from types import TracebackType
from typing import Self, TypeVar, cast

import grpc
from google.protobuf.message import Message

from isochrone_client.address import loopback_address
from isochrone_client.errors import ClientError, CollectorError, RefusedError, SlowError, UnreachableError
from isochrone_wire.answers import (
    CoverageList,
    DifferentialList,
    Leaderboard,
    Metric,
    Selection,
    StoredSample,
    TargetList,
)
from isochrone_wire.codec import CodecError, decode, encode
from isochrone_wire.habits import MAX_MESSAGE_BYTES
from isochrone_wire.model import SECOND_US
from isochrone_wire.v1 import observatory_pb2 as messages
from isochrone_wire.v1.observatory_pb2_grpc import ObservatoryStub

CONNECT_TIMEOUT_US = 3 * SECOND_US
ANSWER_TIMEOUT_US = 30 * SECOND_US
_US_PER_MS = 1000

_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES))

_ERROR_OF: dict[grpc.StatusCode, tuple[type[ClientError], str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (RefusedError, "see --help for what can be asked"),
    grpc.StatusCode.NOT_FOUND: (
        RefusedError,
        "`isochrone targets` names the targets, `isochrone coverage` the regions",
    ),
    grpc.StatusCode.UNAVAILABLE: (
        UnreachableError,
        "is it running? start one with `isochrone-collector serve`, or say where it is with --collector HOST:PORT",
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: (SlowError, "ask for a shorter --window, or wait longer with --timeout"),
    grpc.StatusCode.UNIMPLEMENTED: (CollectorError, "is it an Isochrone collector, and as new as this command?"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (CollectorError, "ask for less: a shorter --window, fewer --target"),
}
# How gRPC begins when nobody was there; anything else is said by whoever was.
_NOT_CONNECTED = "failed to connect"
_ELSE = (CollectorError, "its log says more")

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Value = TypeVar("Value")


class ObservatoryClient:
    """A connection to the collector at `HOST:PORT` on this machine, made with the first question.

    Every method waits at most `timeout_us` microseconds for the answer, and `connect_timeout_us` of them for the
    connection. All raise `RefusedError`, `UnreachableError`, `SlowError` or `CollectorError`; the constructor raises
    `AddressError`.
    """

    def __init__(
        self, collector: str, *, timeout_us: int = ANSWER_TIMEOUT_US, connect_timeout_us: int = CONNECT_TIMEOUT_US
    ) -> None:
        self._address = loopback_address(collector)
        self._timeout_us = timeout_us
        # gRPC knows no connect timeout by name: an attempt may last as long as the shortest pause between two attempts.
        connecting = ("grpc.min_reconnect_backoff_ms", connect_timeout_us // _US_PER_MS)
        self._channel = grpc.insecure_channel(self._address, options=(*_OPTIONS, connecting))
        self._stub = ObservatoryStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back. The client cannot be used afterwards."""
        self._channel.close()

    def list_targets(self) -> TargetList:
        """The targets of the plan in force and its baseline region."""
        response = self._ask(self._stub.ListTargets, messages.ListTargetsRequest())
        return self._value(TargetList, response)

    def list_samples(self, selection: Selection, *, limit: int) -> tuple[StoredSample, ...]:
        """The newest `limit` samples of the selection."""
        request = messages.ListSamplesRequest(selection=encode(selection), limit=limit)
        response = self._ask(self._stub.ListSamples, request)
        return tuple(self._value(StoredSample, sample) for sample in response.samples)

    def get_leaderboard(self, selection: Selection) -> Leaderboard:
        """Targets ranked by median TTFT within each region of the selection."""
        request = messages.GetLeaderboardRequest(selection=encode(selection))
        return self._value(Leaderboard, self._ask(self._stub.GetLeaderboard, request))

    def get_differentials(
        self, selection: Selection, *, baseline: str, against: tuple[str, ...] = (), metric: Metric = Metric.TTFT
    ) -> DifferentialList:
        """Each region of `against` minus `baseline`, per target; without `against`, every other region."""
        request = messages.GetDifferentialsRequest(
            selection=encode(selection), baseline=baseline, against=against, metric=metric
        )
        return self._value(DifferentialList, self._ask(self._stub.GetDifferentials, request))

    def get_coverage(self, selection: Selection) -> CoverageList:
        """Planned and recorded rounds of the selection, per vantage and target."""
        request = messages.GetCoverageRequest(selection=encode(selection))
        return self._value(CoverageList, self._ask(self._stub.GetCoverage, request))

    # In quotes, because the class has parameters for a type checker only.
    def _ask(self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request) -> Response:
        try:
            return method(request, timeout=self._timeout_us / SECOND_US)
        except grpc.RpcError as error:
            raise self._translated(error) from error

    def _translated(self, error: grpc.RpcError) -> ClientError:
        call = cast(grpc.Call, error)  # what a call raises is that call
        kind, hint = _ERROR_OF.get(call.code(), _ELSE)
        return kind(_sentence(kind, self._address, call.details() or call.code().name.lower()), hint=hint)

    def _value(self, cls: type[Value], message: Message) -> Value:
        try:
            return decode(cls, message)
        except CodecError as error:
            raise CollectorError(
                f"the collector at {self._address} says something this version does not know: {error}",
                hint="is the collector newer than this command? then upgrade it",
            ) from error


def _sentence(kind: type[ClientError], address: str, details: str) -> str:
    if kind is RefusedError:
        return details
    if kind is UnreachableError and details.startswith(_NOT_CONNECTED):
        return f"no collector answers at {address}: {details.rpartition(': ')[2]}"
    if kind is SlowError:
        return f"the collector at {address} did not answer in time"
    return f"the collector at {address} failed: {details}"
