"""Selected fields: names, order, and every output format."""

import csv
import io
import json

import pytest

from fixtures.fake_collector import STANDINGS, WINDOW
from isochrone_client.errors import FieldError
from isochrone_client.pages import leaderboard
from isochrone_client.render import renderer
from isochrone_client.render.page import RenderOptions, field_places, select_fields
from isochrone_wire.answers import Order
from isochrone_wire.insights import Leaderboard

PAGE = leaderboard.page(Leaderboard(window=WINDOW, order=Order.TTFT, standings=STANDINGS))


def rendered(output: str, *names: str) -> str:
    """The leaderboard with these fields."""
    return renderer(output).whole(select_fields(PAGE, names), RenderOptions())


def test_json_has_the_fields_in_order() -> None:
    """A nested field is whole under its JSON name, or one number under its CSV name."""
    rows = json.loads(rendered("json", "n", "target", "ttft_p50_us", "ttft_p95_us.value"))["rows"]
    assert list(rows[0]) == ["n", "target", "ttft_p50_us", "ttft_p95_us.value"]
    assert rows[0]["ttft_p50_us"]["low"] == 178_200
    assert rows[0]["ttft_p95_us.value"] == 260_300


def test_csv_has_the_fields_in_order() -> None:
    """A nested field takes all of its columns."""
    lines = list(csv.reader(io.StringIO(rendered("csv", "target", "ttft_p50_us", "n"))))
    columns = [f"ttft_p50_us.{name}" for name in ("value", "low", "high", "n_eff")]
    assert lines[0] == ["target", *columns, "n"]
    assert [*lines[1][:4], lines[1][-1]] == ["deepseek/deepseek-v4-flash", "180000", "178200", "181900", "1431"]


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_people_get_the_fields_too(output: str) -> None:
    """The columns are the fields, an unknown value is a dash, and rows stay under the heading of their group."""
    text = rendered(output, "usd_per_m_input", "model").replace("\\", "")
    assert "us-east-2" in text
    assert text.index("usd_per_m_input") < text.index("model")
    assert "0.07" in text
    assert "–" in text  # noqa: RUF001  # the sign for unknown


def test_an_unknown_field_places_the_nearest() -> None:
    """The error offers the nearest name, and its hint lists all of them."""
    with pytest.raises(FieldError, match="unknown field 'modle'; did you mean 'model'") as caught:
        select_fields(PAGE, ("modle",))
    assert caught.value.exit_code == 2
    assert "tokens_per_second_p50" in caught.value.hint


def test_a_field_may_have_dashes() -> None:
    """A field is found by `-` in place of `_`, and keeps its own name in the output."""
    rows = json.loads(rendered("json", "ttft-p50-us", "TARGET"))["rows"]
    assert list(rows[0]) == ["ttft_p50_us", "target"]


def test_every_name_can_be_selected() -> None:
    """Each name of the list is a field on its own."""
    for name in field_places(PAGE):
        assert select_fields(PAGE, (name,)).fields
