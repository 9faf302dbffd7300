"""The share of failed requests by target, as the answers of a collector state it."""

from fixtures.collector import Caller
from isochrone_client.client import ObservatoryClient
from isochrone_wire.answers import Selection
from isochrone_wire.model import Outcome

Shares = dict[str, float]


def coverage_shares(call: Caller, selection: Selection) -> Shares:
    """Return the shares in the outcomes of `coverage`."""
    counts = {
        line.target: (line.outcomes.get(Outcome.TIMED_OUT, 0), line.outcomes.get(Outcome.OK, 0))
        for line in call.coverage(selection)
    }
    return {target: late / (late + ok) for target, (late, ok) in counts.items() if late + ok}


def leaderboard_shares(call: Caller, selection: Selection) -> Shares:
    """Return what the leaderboard's success leaves."""
    standings = call.leaderboard(selection).standings
    return {line.target: 1 - line.success.value for line in standings if line.success is not None}


def slo_shares(call: Caller, selection: Selection) -> Shares:
    """Return what the goodput under the latency target `web` leaves."""
    lines = call.latency_budgets(selection, "web")
    return {line.target: 1 - line.goodput.value for line in lines if line.goodput is not None}


def route_shares(address: str, region: str) -> Shares:
    """Return what the success of the members of all routes leaves."""
    with ObservatoryClient(address) as client:
        entries = [entry for table in client.get_tables(region).tables for entry in table.entries]
    return {entry.target: 1 - entry.success.value for entry in entries if entry.success is not None}
