"""The table of who may call what misses nothing, and the bucket lets through what it says."""

import pytest

from isochrone_collector.auth.rate_limit import Bucket
from isochrone_collector.errors import Forbidden
from isochrone_collector.grpc_api.auth_interceptor import roles_of
from isochrone_wire.operations import Role
from isochrone_wire.v1 import fleet_pb2, observatory_pb2, operations_pb2

SERVICES = [
    service
    for module in (fleet_pb2, observatory_pb2, operations_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
]
METHODS = [f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_roles(method: str) -> None:
    """Only joining is open to all; who delivers may not read, and who reads may not operate."""
    roles = roles_of(method)
    if method == "/isochrone.v1.Fleet/Join":
        assert roles is None
        return
    assert roles
    assert (Role.VANTAGE in roles) == ("/isochrone.v1.Fleet/" in method)
    assert (Role.READER in roles) == ("/isochrone.v1.Observatory/" in method)


def test_what_the_table_misses_is_for_nobody() -> None:
    """A service of ours that somebody adds is closed until it has a line; health is not ours and open."""
    with pytest.raises(Forbidden):
        roles_of("/isochrone.v1.Tomorrow/Read")
    assert roles_of("/grpc.health.v1.Health/Check") is None


def test_a_bucket_lets_a_burst_through_and_then_a_rate() -> None:
    """So many at once, then so many a second; a clock that goes back gives nothing and breaks nothing."""
    bucket = Bucket(per_second=2.0, burst=3.0)
    assert [bucket.take(10) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(0)
    assert [bucket.take(500_010) for _ in range(2)] == [True, False]
    assert [bucket.take(9_000_000) for _ in range(4)] == [True, True, True, False]
