"""The demo's network as the options of its programs."""

from isochrone_client.demo.network import Network, describe, simulator_options
from isochrone_client.demo.scenario import VANTAGES

REAL = Network(address="10.77.0.1", providers=("enter", "hub"), regions={"us-east-2": ("enter", "us")})
NONE = Network(absence="not allowed")


def test_round_trips_are_taken_from_the_time_of_the_providers() -> None:
    """With a network, the simulator is told the round trip of each region; without one, nothing changes."""
    options = simulator_options(REAL, VANTAGES)
    for vantage in VANTAGES:
        place = options.index(vantage.region)
        assert options[place - 1 : place + 2] == ("--round-trip", vantage.region, str(vantage.round_trip_ms))
    assert simulator_options(NONE, VANTAGES) == ()


def test_without_a_network_everything_runs_on_loopback() -> None:
    """Without a network no command is entered anywhere, and the demo states why in one line."""
    assert (NONE.address, list(NONE.providers), list(NONE.within("us-east-2"))) == ("127.0.0.1", [], [])
    assert list(REAL.within("us-east-2")) == ["enter", "us"]
    assert describe(NONE, VANTAGES).endswith("in the providers only: not allowed")


def test_the_round_trips_are_shown() -> None:
    """With a network the line has the round trip of every region."""
    line = describe(REAL, VANTAGES)
    for vantage in VANTAGES:
        assert f"{vantage.round_trip_ms} ms from {vantage.region}" in line


def test_the_round_trips_fit_the_world() -> None:
    """From Frankfurt the round trip is 25 ms longer than from Ohio, as the world assumes for the distance, and none is
    longer than the quickest answer.
    """
    round_trip_ms = {vantage.region: vantage.round_trip_ms for vantage in VANTAGES}
    assert round_trip_ms["eu-central-1"] - round_trip_ms["us-east-2"] == 25
    assert max(round_trip_ms.values()) < 90
