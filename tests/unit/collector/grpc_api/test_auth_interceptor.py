"""The table of roles has every method of the services."""

import pytest

from isochrone_collector.errors import Forbidden
from isochrone_collector.grpc_api import discovery
from isochrone_collector.grpc_api.guards import roles_of
from isochrone_wire.operations import Role
from isochrone_wire.v1 import fleet_pb2, operations_pb2

SERVICES = [
    service for module in (fleet_pb2, operations_pb2) for service in module.DESCRIPTOR.services_by_name.values()
]
METHODS = [f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_roles(method: str) -> None:
    """Only joining needs no credential; all roles renew theirs; a reader may see vantages only."""
    roles = roles_of(method)
    if method == "/isochrone.v1.Fleet/Join":
        assert roles is None
        return
    if method == "/isochrone.v1.Fleet/Renew":
        assert set(roles or ()) == set(Role)
        return
    assert roles
    assert (Role.VANTAGE in roles) == ("/isochrone.v1.Fleet/" in method)
    assert (Role.READER in roles) == (method == "/isochrone.v1.Operations/ListVantages")


@pytest.mark.parametrize("method", discovery.METHODS)
def test_envoy_reads_like_other_readers(method: str) -> None:
    """Envoy's services take the credential of a reader or an operator, never that of a vantage or none."""
    assert roles_of(method) == (Role.READER, Role.OPERATOR)


def test_a_method_that_the_table_lacks_is_refused() -> None:
    """A new service is refused until it is in the table; health is not an Isochrone service and needs no credential."""
    with pytest.raises(Forbidden):
        roles_of("/isochrone.v1.Tomorrow/Read")
    with pytest.raises(Forbidden):
        roles_of("/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets")
    assert roles_of("/grpc.health.v1.Health/Check") is None
