import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from isochrone_collector.cli import health_checks
from isochrone_collector.cli.operator_client import OperatorClient, data_dir_option, operator_options
from isochrone_collector.clock import now_at
from isochrone_collector.disk_space import DiskSpace
from isochrone_collector.errors import CollectorError, SettingsError
from isochrone_collector.server.certificates import switch_at
from isochrone_collector.settings import DEFAULT_DISK_LOW_PERCENT
from isochrone_collector.store import diagnostics
from isochrone_collector.store.audit import NO_ENTRY, Head
from isochrone_collector.store.postgres import embedded
from isochrone_common.address import Address
from isochrone_common.cli.command_line import example, print_json, table_or_json
from isochrone_common.cli.health_check import CheckResult, Verdict, fail, ok, warn, worst
from isochrone_common.credentials import fingerprint_of
from isochrone_common.files import replace_file
from isochrone_common.trust import presented_certificate
from isochrone_wire import __version__, codec
from isochrone_wire.fleet import VantageList
from isochrone_wire.model import SECOND_US
from isochrone_wire.operations import Role
from isochrone_wire.text import printable
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc, operations_pb2, operations_pb2_grpc

SCHEMA = "isochrone.doctor/1"
_COLOUR_OF = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}
_TIMEOUT_S = 5.0
_LIBRARIES = ("grpcio", "protobuf", "numpy", "alembic")


@click.command(epilog=example("isochrone-collector doctor"))
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", help="PostgreSQL of `serve`, unless it is embedded.")
@data_dir_option
@table_or_json
@operator_options
def doctor(*, database_url: str | None, data_dir: Path, output: str, client: OperatorClient) -> None:
    """Check everything that a collector depends on.

    That is software, folder, disk, database, partitions, clock, health, plan, vantages, credentials and certificate;
    nothing is changed. Each check is ok, warn or fail, with a hint; the exit code is 1 when one of them fails.
    """
    # In the order in which things depend on one another.
    results = [
        _software(),
        *_folder(data_dir, needed=not database_url),
        *_database(database_url or None, data_dir),
        *_collector(client, data_dir),
    ]
    if output == "json":
        print_json({"schema": SCHEMA, "findings": [asdict(finding) for finding in results]})
    else:
        click.echo(_table(results))
    if worst(results) is Verdict.FAIL:
        sys.exit(1)


def _table(results: Sequence[CheckResult]) -> str:
    lines: list[str] = []
    for finding in results:
        verdict = click.style(f"{finding.verdict:4}", fg=_COLOUR_OF[finding.verdict])
        lines.append(f"{verdict}  {finding.check:12}  {printable(finding.sentence)}")
        lines += [f"{'':4}  {'':12}  → {finding.hint}"] if finding.hint else []
    return "\n".join(lines)


def _software() -> CheckResult:
    python = ".".join(map(str, sys.version_info[:3]))
    sentence = (
        f"isochrone {__version__}, Python {python}, {diagnostics.driver()}, {', '.join(map(_version_of, _LIBRARIES))}"
    )
    if "(python)" in sentence:
        return warn("software", sentence, "pip install 'psycopg[binary]': in Python alone ingest is slow")
    return ok("software", sentence)


def _version_of(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name}"


def _folder(data_dir: Path, *, needed: bool) -> Iterator[CheckResult]:
    if not data_dir.is_dir():
        sentence = f"{data_dir} is not there"
        hint = "`serve` makes it when it starts; or pass --data-dir or --database-url"
        yield warn("data folder", sentence, hint) if needed else ok("data folder", f"{sentence}, nor needed yet")
        return
    found = data_dir.stat()
    if not os.access(data_dir, os.W_OK | os.X_OK):
        hint = "run this as the collector's user, or give the folder to it"
        yield fail("data folder", f"{data_dir} belongs to user {found.st_uid}, and we cannot write there", hint)
    else:
        yield health_checks.judge_mode(found.st_mode & 0o777, where=str(data_dir))
    usage = shutil.disk_usage(data_dir)
    space = DiskSpace(free_bytes=usage.free, size_bytes=usage.total, low_percent=DEFAULT_DISK_LOW_PERCENT)
    yield health_checks.judge_disk(space, where=str(data_dir))


def _database(database_url: str | None, data_dir: Path) -> Iterator[CheckResult]:
    conninfo = database_url or embedded.running(data_dir)
    if conninfo is None:
        hint = "start `isochrone-collector serve`, which starts it, or pass --database-url"
        yield fail("database", f"no embedded PostgreSQL runs over {data_dir}", hint)
        return
    file = data_dir / "audit.head"
    try:
        known = _known_entry(file)
        facts = diagnostics.facts(conninfo, known_entry=known)
    except CollectorError as error:
        yield fail("database", str(error), error.hint)
        return
    yield from health_checks.judge_database(facts, now_at=now_at())
    if facts.audit is not None and facts.audit.is_whole and os.access(data_dir, os.W_OK):
        head = facts.audit.head
        replace_file(file, f"{head.id} {head.hash.hex()}\n".encode(), mode=0o644)


def _known_entry(file: Path) -> Head:
    """Return the newest entry of the audit trail at the last check."""
    try:
        number, _, found = file.read_text().strip().partition(" ")
        return Head(id=int(number), hash=bytes.fromhex(found))
    except FileNotFoundError:
        return NO_ENTRY
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read {file}: {error}", hint="run this as the collector's user") from error


def _collector(client: OperatorClient, data_dir: Path) -> Iterator[CheckResult]:
    try:
        address = client.address
        with client.channel() as channel:
            check = "health"
            try:
                yield _health(channel, address)
                check = "vantages"
                stub = operations_pb2_grpc.OperationsStub(channel)
                answer = stub.ListVantages(operations_pb2.ListVantagesRequest(), timeout=_TIMEOUT_S)
                yield from health_checks.judge_fleet(codec.decode(VantageList, answer))
            except grpc.RpcError as error:
                refused = client.failure(error)
                yield fail(check, str(refused), refused.hint)
                if check == "health":
                    return
            coming = _next_fingerprint(channel)
    except CollectorError as error:
        yield fail("health", str(error), error.hint)
        return
    try:
        # Only an operator may see them.
        yield health_checks.judge_credentials(client.access(tuple(Role)), now_at=now_at())
    except CollectorError as error:
        yield warn("credentials", f"they cannot be listed: {error}", "pass an operator's identity with --identity")
    yield _certificate(address)
    if coming is not None:
        yield health_checks.judge_rotation(coming, switch_at=switch_at(data_dir, coming), now_at=now_at())


def _health(channel: grpc.Channel, address: Address) -> CheckResult:
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        said = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        return warn("health", f"{address} is {said}", "it is starting or stopping; ask again in a moment")
    return ok("health", f"{address} is SERVING")


def _next_fingerprint(channel: grpc.Channel) -> bytes | None:
    """Return the SHA-256 of the certificate that the collector announces, if there is one, and it may be known here."""
    try:
        answer = fleet_pb2_grpc.FleetStub(channel).Renew(fleet_pb2.RenewRequest(), timeout=_TIMEOUT_S)
        return next(map(fingerprint_of, answer.certificates[1:]), None)
    except (grpc.RpcError, ValueError):
        return None


def _certificate(address: Address) -> CheckResult:
    if address.is_socket:
        return ok("certificate", "the Unix socket needs none")
    try:
        shown = presented_certificate(address)
    except OSError as error:
        return warn("certificate", f"{address} cannot be looked at: {error}", "see health")
    except ValueError as error:
        if address.is_loopback:
            return ok("certificate", "plain text on loopback, so there is none")
        return fail("certificate", str(error), "see --certificate of `serve`")
    from cryptography import x509  # noqa: PLC0415  # heavy, and only for TLS

    ends_at = x509.load_pem_x509_certificate(shown.certificate.encode()).not_valid_after_utc
    return health_checks.judge_certificate(int(ends_at.timestamp()) * SECOND_US, now_at=now_at())
