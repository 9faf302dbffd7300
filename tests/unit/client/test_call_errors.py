"""Errors of calls as errors of the client: the hint follows from what is unknown."""

import grpc
import pytest

from isochrone_client.call_errors import client_error
from isochrone_client.errors import RefusedError
from isochrone_common.address import Address


class Refusal(grpc.RpcError):
    """A call that the collector refused because of an unknown name."""

    def __init__(self, details: str) -> None:
        self._details = details

    def code(self) -> grpc.StatusCode:
        """As of a call."""
        return grpc.StatusCode.NOT_FOUND

    def details(self) -> str:
        """The collector's sentence."""
        return self._details


@pytest.mark.parametrize(
    ("details", "command"),
    [
        ("unknown client region 'eu'; known: us", "isochrone routes"),
        ("unknown route 'chta'; known: chat", "isochrone routes"),
        ("unknown region 'eu'; known: us", "isochrone regions"),
        ("unknown use 'voise'", "isochrone slo"),
        ("unknown target 'kimi'", "isochrone targets"),
    ],
)
def test_the_hint_names_the_command_that_lists_the_known_names(details: str, command: str) -> None:
    """Each kind of name has its command, and the collector's sentence is kept."""
    error = client_error(Refusal(details), Address("collector", 4600))
    assert isinstance(error, RefusedError)
    assert str(error) == details
    assert error.hint.startswith(f"`{command}`")
