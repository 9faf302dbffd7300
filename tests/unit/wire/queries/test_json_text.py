"""JSON text of the value classes: that of the standard library for the same plain data."""

import json
from math import inf, nan

import pytest

from isochrone_wire.answers import Metric, Quantile, Window
from isochrone_wire.fleet import SampleList
from isochrone_wire.insights import Leaderboard, Standing
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import DAY_US, Batch, Outcome, Quality, Sample, Vantage
from isochrone_wire.queries.json_text import json_text

AT = 1_700_000_000_123_456
QUANTILE = Quantile(value=412_345.1, low=None, high=1e22, n_eff=nan)
STANDING = Standing(
    region='<é>\n"',
    rank=1,
    target="a/b",
    provider="",
    model="\u2028",
    n=3,
    failed=0,
    ttft_p50_us=QUANTILE,
    newest_at=AT,
)
SAMPLE = Sample(target_id=1, round_at=AT, dispatched_at=AT, outcome=Outcome.OK, ttft_us=400_000, quality=Quality.CACHED)


@pytest.mark.parametrize(
    "value",
    [
        QUANTILE,
        STANDING,
        Leaderboard(window=Window(from_at=0, until_at=DAY_US), standings=(STANDING, STANDING)),
        SAMPLE,
        Batch(vantage=Vantage(name="v", region="r"), epoch=1, seq=2, samples=(SAMPLE,)),
        SampleList(window=Window(from_at=0, until_at=1)),
        {"a": (1, True, None, inf, 0.1, b"ab"), "b": [Metric.TTFT, Window(from_at=0, until_at=1)]},
        "text",
        -0.0,
    ],
)
def test_the_text_is_that_of_the_plain_data(value: object) -> None:
    """Whatever the class, numbers, texts and instants are written as by `json` for `to_json_value`."""
    assert json_text(value) == json.dumps(to_json_value(value), ensure_ascii=False, separators=(",", ":"))


def test_instants_ids_and_missing_numbers() -> None:
    """Instants are RFC 3339 text, ids have their prefix, and what is no number is null."""
    assert '"newest_at":"2023-11-14T22:13:20.123456Z"' in json_text(STANDING)
    assert json_text(QUANTILE) == '{"value":412345.1,"low":null,"high":1e+22,"n_eff":null}'
