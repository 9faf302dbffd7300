"""Where a difference comes from, phase by phase."""

from typing import Any

import numpy as np
import pytest

from isochrone_collector.analysis.differential.decomposition import Phases, parts
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_wire.answers import Part

MS = 1_000.0
NAN = float("nan")
US: dict[str, float] = {"dns": 5.0, "tcp": 10.0, "tls": 20.0, "rtt": 10.0, "ttft": 210.0, "provider": 190.0}
SG: dict[str, float] = {"dns": 4.0, "tcp": 60.0, "tls": 125.0, "rtt": 60.0, "ttft": 270.0, "provider": 199.0}
NAMES = ["dns", "tcp", "tls", "rtt", "server", "edge", "provider"]


def phases(sides: dict[str, dict[str, float]], *, n: int = 40, jitter: float = 0.0) -> Phases:
    """N rounds of each region with the same phases in milliseconds, give or take."""
    chance = np.random.default_rng(20261121)
    regions = tuple(sides)

    def column(name: str) -> Reals:
        means = np.repeat([side[name] * MS for side in sides.values()], n)
        return means + jitter * MS * chance.standard_normal(len(means))

    count = n * len(regions)
    return Phases(
        regions=regions,
        target_id=np.ones(count, dtype=np.int64),
        region=np.repeat(np.arange(len(regions)), n),
        round_at=np.tile(np.arange(n), len(regions)),
        **{name: column(name) for name in US},
    )


def told(given: Phases, **more: Any) -> dict[str, Part]:
    found = parts(given, [(1, "sg")], baseline="us", changes=more.get("changes", {}))[1, "sg"]
    return {part.name: part for part in found}


def test_the_parts_are_the_differences_of_the_phases() -> None:
    """Each phase has its own shift and medians, the server what the first token waits beyond one round trip."""
    found = told(phases({"us": US, "sg": SG}))
    assert list(found) == NAMES
    assert {name: part.shift / MS for name, part in found.items()} == {
        "dns": -1.0,
        "tcp": 50.0,
        "tls": 105.0,
        "rtt": 50.0,
        "server": 10.0,
        "edge": 1.0,
        "provider": 9.0,
    }
    assert (found["tcp"].baseline_median, found["tcp"].region_median, found["tcp"].n) == (10 * MS, 60 * MS, 40)


def test_the_parts_add_up_to_the_whole() -> None:
    """Without noise exactly, and with noise nearly, dns, tcp, tls, rtt and server make up the cold first token."""
    whole = sum(SG[name] - US[name] for name in ("dns", "tcp", "tls", "ttft")) * MS
    for jitter, slack in ((0.0, 1e-6), (2.0, 2 * MS)):
        found = told(phases({"us": US, "sg": SG}, jitter=jitter))
        assert sum(found[name].shift for name in NAMES[:5]) == pytest.approx(whole, abs=slack)
        assert all(part.low is not None and part.high is not None for part in found.values())
        assert found["edge"].shift + found["provider"].shift == pytest.approx(found["server"].shift, abs=slack)


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        # Plain HTTP at an address: there is neither dns nor tls.
        (("dns", "tls"), ["tcp", "rtt", "server", "edge", "provider"]),
        (("provider",), NAMES[:5]),
        # A connection that is kept: the parts are those of ttft.
        (("dns", "tcp", "tls"), ["rtt", "server", "edge", "provider"]),
        (("rtt",), []),
    ],
)
def test_what_a_request_does_not_have_is_no_part(missing: tuple[str, ...], names: list[str]) -> None:
    """A phase that the target never has is left out, and without a round trip nothing can be taken apart."""
    gone = dict.fromkeys(missing, NAN)
    assert list(told(phases({"us": US | gone, "sg": SG | gone}))) == names


@pytest.mark.parametrize(
    ("connected", "place", "duration", "counted"),
    [
        # Where most probes connect anew, one that did not has not all phases, and is left out of every part.
        (True, 3, NAN, dict.fromkeys(NAMES, 39)),
        # Where connections are kept, the one probe that opened it is left out.
        (False, 0, MS, dict.fromkeys(NAMES[3:], 39)),
    ],
)
def test_a_probe_of_the_other_kind_of_connection_does_not_count(
    place: int,
    duration: float,
    counted: dict[str, int],
    connected: bool,  # noqa: FBT001  # a column of the table
) -> None:
    """The parts are those of new connections, or of kept ones, as most probes of the target have them."""
    usual = {} if connected else dict.fromkeys(("dns", "tcp", "tls"), NAN)
    given = phases({"us": US | usual, "sg": SG | usual})
    for name in ("dns", "tcp", "tls"):
        getattr(given, name)[place] = duration
    assert {name: part.n for name, part in told(given).items()} == counted


def test_a_change_cuts_the_parts_too() -> None:
    """The parts are of the differential's rounds; a region without samples has none, and no error."""
    assert told(phases({"us": US, "sg": SG}), changes={(1, "us"): 25})["rtt"].n == 15
    assert parts(phases({"us": US}), [(1, "sg"), (2, "sg")], baseline="us", changes={}) == {
        (1, "sg"): (),
        (2, "sg"): (),
    }


def test_a_report_of_something_else_divides_nothing() -> None:
    """A provider that reports more than the server's part, such as the whole answer's time, is no part of it."""
    found = told(phases({"us": US | {"provider": 5_000.0}, "sg": SG | {"provider": 5_000.0}}))
    assert "edge" not in found
    assert "provider" in found
