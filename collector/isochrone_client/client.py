"""Asks a collector, and gives values back: the one place on the reading side that sees gRPC and its messages.

with ObservatoryClient("127.0.0.1:4600") as client:
    answer = client.get_leaderboard(Selection(window=window))
"""

from types import TracebackType
from typing import Self, TypeVar, cast

import grpc
from google.protobuf.message import Message

from isochrone_client.address import Whom, whom
from isochrone_client.errors import (
    AccessError,
    AddressError,
    ClientError,
    CollectorError,
    RefusedError,
    SlowError,
    UnreachableError,
)
from isochrone_wire.answers import (
    CoverageList,
    DifferentialList,
    Leaderboard,
    Metric,
    Selection,
    SpendList,
    StoredSample,
    TargetList,
    VantageList,
)
from isochrone_wire.channel import PLAIN, open_channel
from isochrone_wire.codec import CodecError, decode, encode
from isochrone_wire.model import SECOND_US
from isochrone_wire.v1 import observatory_pb2 as messages
from isochrone_wire.v1.observatory_pb2_grpc import ObservatoryStub

CONNECT_TIMEOUT_US = 3 * SECOND_US
ANSWER_TIMEOUT_US = 30 * SECOND_US
_US_PER_MS = 1000

_NO_PROXY = ("grpc.enable_http_proxy", 0)

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
    grpc.StatusCode.UNAUTHENTICATED: (AccessError, "an operator lets you in: isochrone-collector access add"),
    grpc.StatusCode.PERMISSION_DENIED: (AccessError, "an operator gives roles: isochrone-collector access add"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (SlowError, "ask for a shorter --window, or wait longer with --timeout"),
    grpc.StatusCode.UNIMPLEMENTED: (CollectorError, "is it an Isochrone collector, and as new as this command?"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (CollectorError, "ask for less: a shorter --window, fewer --target"),
}
# How gRPC begins when nobody was there; anything else is said by whoever was.
_NOT_CONNECTED = "failed to connect"
# How it tells that the certificate is not one that was to be believed.
_NOT_BELIEVED = "CERTIFICATE_VERIFY_FAILED"
_ELSE = (CollectorError, "its log says more")

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Value = TypeVar("Value")


class ObservatoryClient:
    """A connection to a collector, made with the first question: at `HOST:PORT` on this machine, or where one joined.

    Every method waits at most `timeout_us` microseconds for the answer, and `connect_timeout_us` of them for the
    connection. All raise `RefusedError`, `UnreachableError`, `SlowError` or `CollectorError`; the constructor raises
    `AddressError`.
    """

    def __init__(
        self,
        collector: str | Whom,
        *,
        timeout_us: int = ANSWER_TIMEOUT_US,
        connect_timeout_us: int = CONNECT_TIMEOUT_US,
    ) -> None:
        where = whom(collector) if isinstance(collector, str) else collector
        self._address = str(where)
        self._timeout_us = timeout_us
        # gRPC knows no connect timeout by name: an attempt may last as long as the shortest pause between two attempts.
        connecting = ("grpc.min_reconnect_backoff_ms", connect_timeout_us // _US_PER_MS)
        self._channel = _opened(where, (_NO_PROXY, connecting))
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

    def list_vantages(self) -> VantageList:
        """Every vantage the collector ever heard of, and how it is doing."""
        return self._value(VantageList, self._ask(self._stub.ListVantages, messages.ListVantagesRequest()))

    def get_spend(self, selection: Selection) -> SpendList:
        """What each vantage of the selection has spent today (UTC), per provider; its window does not apply."""
        request = messages.GetSpendRequest(selection=encode(selection))
        return self._value(SpendList, self._ask(self._stub.GetSpend, request))

    # In quotes, because the class has parameters for a type checker only.
    def _ask(self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request) -> Response:
        try:
            return method(request, timeout=self._timeout_us / SECOND_US)
        except grpc.RpcError as error:
            raise self._translated(error) from error

    def _translated(self, error: grpc.RpcError) -> ClientError:
        call = cast(grpc.Call, error)  # what a call raises is that call
        if _NOT_BELIEVED in (call.details() or ""):
            sentence = f"the collector at {self._address} is not the one that was joined: its certificate is another"
            return AccessError(sentence, hint="if its operator has changed the certificate, join again")
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


def _opened(where: Whom, options: tuple[tuple[str, int], ...]) -> grpc.Channel:
    who = where.passport
    try:
        if who is None:
            return open_channel(where.address, PLAIN, more=options)
        return open_channel(where.address, who.trust, who.credential, more=options)
    except ValueError as error:
        raise AddressError(str(error), hint="join the collector first: isochrone join") from error


def _sentence(kind: type[ClientError], address: str, details: str) -> str:
    if kind in (RefusedError, AccessError):
        return details
    if kind is UnreachableError and details.startswith(_NOT_CONNECTED):
        return f"no collector answers at {address}: {details.rpartition(': ')[2]}"
    if kind is SlowError:
        return f"the collector at {address} did not answer in time"
    return f"the collector at {address} failed: {details}"
