"""`doctor`: look at everything a collector stands on, and say of each whether it is well. Nothing is changed."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from isochrone_collector.cli import health_checks
from isochrone_collector.cli.operator_channel import address_of, operator_channel, translated
from isochrone_collector.clock import now_at
from isochrone_collector.errors import CollectorError
from isochrone_collector.store import diagnostics
from isochrone_collector.store.postgres import embedded
from isochrone_wire import __version__, codec
from isochrone_wire.address import Address
from isochrone_wire.answers import VantageList
from isochrone_wire.channel import presented_certificate
from isochrone_wire.health_check import CheckResult, Verdict, fail, ok, warn
from isochrone_wire.model import SECOND_US
from isochrone_wire.v1 import observatory_pb2, observatory_pb2_grpc

_PATIENCE_S = 5.0
_LIBRARIES = ("grpcio", "protobuf", "numpy", "alembic")


def examine(
    *, database_url: str | None, data_dir: Path, collector: str | None, identity: Path | None
) -> Iterator[CheckResult]:
    """Every finding, in the order in which things build on one another."""
    yield _software()
    yield from _folder(data_dir, needed=database_url is None)
    yield from _database(database_url, data_dir)
    yield from _collector(collector, identity)


def _software() -> CheckResult:
    python = ".".join(map(str, sys.version_info[:3]))
    sentence = f"isochrone {__version__}, Python {python}, {diagnostics.driver()}, {', '.join(_versions())}"
    if "(python)" in sentence:
        return warn("software", sentence, "pip install 'psycopg[binary]': in Python alone ingest is slow")
    return ok("software", sentence)


def _versions() -> Iterator[str]:
    for name in _LIBRARIES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"no {name}"


def _folder(data_dir: Path, *, needed: bool) -> Iterator[CheckResult]:
    if not data_dir.is_dir():
        sentence = f"{data_dir} is not there"
        hint = "`serve` makes it when it starts; or say --data-dir, or --database-url"
        yield warn("data folder", sentence, hint) if needed else ok("data folder", f"{sentence}, nor needed yet")
        return
    found = data_dir.stat()
    if not os.access(data_dir, os.W_OK | os.X_OK):
        hint = "run this as the collector's user, or give the folder to it"
        yield fail("data folder", f"{data_dir} belongs to user {found.st_uid}, and we cannot write there", hint)
    else:
        yield health_checks.judge_mode(found.st_mode & 0o777, where=str(data_dir))
    yield health_checks.judge_disk(shutil.disk_usage(data_dir).free, where=str(data_dir))


def _database(database_url: str | None, data_dir: Path) -> Iterator[CheckResult]:
    conninfo = database_url or embedded.running(data_dir)
    if conninfo is None:
        hint = "start `isochrone-collector serve`, which brings it, or say --database-url"
        yield fail("database", f"no embedded PostgreSQL runs over {data_dir}", hint)
        return
    try:
        facts = diagnostics.facts(conninfo)
    except CollectorError as error:
        yield fail("database", str(error), error.hint)
        return
    yield from health_checks.judge_database(facts, now_at=now_at())


def _collector(collector: str | None, identity: Path | None) -> Iterator[CheckResult]:
    try:
        address = address_of(collector, identity)
        with operator_channel(collector, identity) as channel:
            health = _attempt("health", lambda: _health(channel, address), address)
            yield health
            if health.verdict is Verdict.FAIL:
                return
            yield _attempt("vantages", lambda: _fleet(channel), address)
    except CollectorError as error:
        yield fail("health", str(error), error.hint)
        return
    yield _certificate(address)


def _attempt(check: str, work: Callable[[], CheckResult], address: Address) -> CheckResult:
    try:
        return work()
    except grpc.RpcError as error:
        refused = translated(error, str(address))
        return fail(check, str(refused), refused.hint)


def _health(channel: grpc.Channel, address: Address) -> CheckResult:
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_PATIENCE_S)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        said = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        return warn("health", f"{address} is {said}", "it is starting or stopping; ask again in a moment")
    return ok("health", f"{address} is SERVING")


def _fleet(channel: grpc.Channel) -> CheckResult:
    stub = observatory_pb2_grpc.ObservatoryStub(channel)
    answer = stub.ListVantages(observatory_pb2.ListVantagesRequest(), timeout=_PATIENCE_S)
    return health_checks.judge_fleet(codec.decode(VantageList, answer))


def _certificate(address: Address) -> CheckResult:
    try:
        shown = presented_certificate(address)
    except OSError as error:
        return warn("certificate", f"{address} cannot be looked at: {error}", "see health")
    except ValueError as error:
        if address.is_loopback:
            return ok("certificate", "plain text on loopback, so there is none")
        return fail("certificate", str(error), "see --certificate of `serve`")
    return health_checks.judge_certificate(_not_after_at(shown.certificate), now_at=now_at())


def _not_after_at(certificate: str) -> int:
    from cryptography import x509  # noqa: PLC0415  # heavy, and only for TLS

    read = x509.load_pem_x509_certificate(certificate.encode())
    return int(read.not_valid_after_utc.timestamp()) * SECOND_US
