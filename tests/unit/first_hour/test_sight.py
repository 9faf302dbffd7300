"""The comparisons of `make first-sight`: what counts as a contradiction, and when the first table was there."""

from typing import Any

import pytest

from first_hour.sight import Sight, differences, disagreements, installed_bytes, odd

ROW = {
    "target": "zhipu/glm-5",
    "region": "eu-central-1",
    "baseline": "us-east-2",
    "n": 12,
    "baseline_median": 500_000.0,
    "region_median": 550_000.0,
    "median_difference": 50_000.0,
    "shift": 49_000.0,
    "decision": "slower",
}

CELL = {"target": "zhipu/glm-5", "region": "eu-central-1", "n": 12, "ttft_p50_us": {"value": 5.0}}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, ""),
        ({"shift": -49_000.0, "decision": "faster"}, "its medians by 50000 us"),
        ({"decision": "faster"}, "is called faster"),
        ({"decision": "undecided", "shift": -1.0}, ""),
    ],
)
def test_a_row_of_diff_agrees_with_itself(changed: dict[str, Any], found: str) -> None:
    """The difference has the sign of its medians, and of its decision."""
    sentences = list(odd("diff", [ROW | changed]))
    assert [found in sentence for sentence in sentences] == [True] * bool(found)


@pytest.mark.parametrize(("p50", "is_odd"), [(5.0, False), (None, True)])
def test_a_p95_without_a_p50_is_odd(p50: float | None, *, is_odd: bool) -> None:
    """Where there is a tail, there is a median."""
    assert bool(list(odd("table", [CELL | {"ttft_p50_us": {"value": p50}, "ttft_p95_us": {"value": 9.0}}]))) is is_odd


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ({}, {}, 0),
        ({"ttft_p50_us": {"value": 6.0}}, {}, 1),
        ({"ttft_p50_us": {"value": None}}, {}, 1),
        ({"ttft_p50_us": {"value": 6.0}, "n": 13}, {}, 0),
        ({"shift": 1, "decision": "slower"}, {"shift": 1.0, "decision": "faster"}, 1),
    ],
)
def test_values_of_the_same_samples_are_compared(one: dict[str, Any], other: dict[str, Any], count: int) -> None:
    """Rows that count other samples may differ."""
    assert len(list(differences("diff", [CELL | one], [CELL | other]))) == count


@pytest.mark.parametrize(
    ("status", "count"),
    [
        ({"verdict": "warning", "rows": []}, 0),
        ({"verdict": "well", "rows": []}, 1),
        ({"verdict": "warning", "rows": [{"shift": -400_000.0}]}, 1),
        ({"verdict": "warning", "rows": [{"shift": -400_000.0, "baseline": ""}]}, 0),
    ],
)
def test_the_status_agrees_with_what_it_is_of(status: dict[str, Any], count: int) -> None:
    """An open incident is no "well", and a finding has the sign of its row."""
    finding = {"kind": "slower", "sentence": "slower", "target": ROW["target"], "regions": [ROW["region"]]}
    rows = [finding | {"baseline": "us-east-2"} | row for row in status["rows"]]
    assert len(list(disagreements(status | {"rows": rows}, [ROW], [CELL]))) == count


def test_the_first_table_has_a_value_for_each_target() -> None:
    """A table with an empty cell does not count."""
    sight = Sight()
    texts = ["starting", "a/b   -", "a/c  12?", "", "a/b  30?", "a/c  12?", "", "a/b  31", "a/c  12", ""]
    sight.lines = [(float(number), text) for number, text in enumerate(texts)]
    assert sight.first_table_at == 6


def test_the_size_of_an_installation_has_all_that_it_requires() -> None:
    """Each distribution once, those of an extra only if it is asked for."""
    alone, more = installed_bytes("isochrone"), installed_bytes("isochrone", "collector")
    assert 1_000_000 < alone < more < 3_000_000_000
