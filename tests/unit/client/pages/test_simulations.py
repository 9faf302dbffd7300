"""The page of a simulation: differences to the static line, and notes."""

from dataclasses import replace

import pytest

from fixtures.fake_collector import WINDOW
from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN
from isochrone_client.pages import simulations
from isochrone_client.render import renderer
from isochrone_client.render.page import RenderOptions
from isochrone_wire.answers import Quantile
from isochrone_wire.insights import Simulation, SimulationList

LEARNT = "the first 6 rounds were only learnt from"
CHARGED = "usd counts every request that was begun as charged in full, as a cancelled stream may be"


def around(ms: float) -> Quantile:
    return Quantile(value=1000 * ms, low=900 * ms, high=1100 * ms)


STATIC = Simulation(
    policy="static:p/a",
    region="us",
    rounds=100,
    requests=100,
    ttft_p50_us=around(300),
    ttft_p95_us=around(900),
    usd=0.5,
    note=LEARNT,
)
RACE = replace(
    STATIC,
    policy="race:2",
    requests=200,
    ttft_p50_us=around(250),
    ttft_p95_us=around(400),
    usd=None,
    note=f"{LEARNT}; {CHARGED}",
)


def table(*rows: Simulation) -> str:
    """The table of these lines."""
    answer = SimulationList(window=WINDOW, members=("p/a", "p/b"), simulations=rows)
    return renderer("table").whole(simulations.page(answer), RenderOptions())


def test_differences_are_to_the_static_line() -> None:
    """Changes are relative to the static line wherever it is; an unknown cost is a dash."""
    for rows in ((STATIC, RACE), (RACE, STATIC)):
        [line] = [line for line in table(*rows).splitlines() if line.startswith("race")]
        assert " ".join(line.split()) == f"race:2 [1] 250 -50 400 360 … 440 -500 100 200 {UNKNOWN}"


def test_what_all_lines_share_is_noted_once() -> None:
    """A note that all lines of a region share appears once; a policy's own note is a footnote."""
    text = table(STATIC, RACE, replace(STATIC, region="sg"), replace(RACE, region="sg"))
    assert text.count("were only learnt from") == 2
    assert text.count("charged in full") == 1
    assert text.count("change: relative to") == 1
    assert "us: the first 6 rounds" in " ".join(text.split())


def test_a_policy_that_was_not_replayed_is_a_line_of_dashes() -> None:
    """It stays in the table of its region, with the reason in a footnote."""
    why = "not replayed, as its members are not probed in the same rounds"
    refused = replace(RACE, rounds=0, requests=0, ttft_p50_us=None, ttft_p95_us=None, note=f"{LEARNT}; {why}")
    text = table(STATIC, refused)
    assert text.count("from us") == 1
    assert f"[1] {why}" in text
    assert "us: the first 6 rounds" in text


def test_a_quantile_without_an_interval_is_not_shown() -> None:
    """With too few rounds there is a dash, and a note with the reason."""
    text = table(STATIC, replace(RACE, ttft_p95_us=Quantile(value=400_000)))
    assert "a p95 59" in text
    assert "400" not in text.replace("400 …", "")


def test_nothing_to_replay_is_an_error() -> None:
    """Without any round the note is the error, and the exit code is 4."""
    empty = replace(STATIC, rounds=0, requests=0, note="nothing to replay: p/b was never probed there")
    with pytest.raises(InsufficientError, match="p/b was never probed"):
        simulations.require_replay(SimulationList(window=WINDOW, simulations=(empty,)))
    with pytest.raises(InsufficientError, match="no samples between"):
        simulations.require_replay(SimulationList(window=WINDOW))
    simulations.require_replay(SimulationList(window=WINDOW, simulations=(empty, RACE)))
