"""Rendering: every answer can be written in every format, and programs get all of the wire, or selected fields."""

import csv
import io
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from fixtures.fake_collector import COVERAGE, DIFFERENTIALS, NOW_AT, SAMPLES, STANDINGS, TARGETS, WINDOW, stored
from isochrone_client.errors import UsageError
from isochrone_client.formats import UNKNOWN
from isochrone_client.pages import differentials, fleet, leaderboard, samples
from isochrone_client.render import OUTPUTS, renderer
from isochrone_client.render.page import (
    Column,
    Field,
    Page,
    RenderOptions,
    field_places,
    field_text,
    row_record,
    select_fields,
    wire_fields,
)
from isochrone_wire.answers import Differential, DifferentialList, Metric, Order, Window
from isochrone_wire.fleet import (
    Coverage,
    CoverageList,
    SpendLine,
    SpendList,
    StoredSample,
    TargetList,
    VantageList,
    VantageStatus,
)
from isochrone_wire.insights import Leaderboard, Standing
from isochrone_wire.model import Quality, RateLimit, Target
from isochrone_wire.queries.documents import FORMATS

PLAIN = RenderOptions()
NASTY = ["openai/gpt-5-mini", "a|b", "\x1b[31mred\x1b[0m", "line\nbreak", "千问" * 30, "x" * 200, "[bold]", "`*_"]
INSTANTS = st.integers(0, 4_102_444_800_000_000)
DRAWN_FROM: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(0, 10**7),
    float: st.floats() | st.floats(0, 1e6),
    str: st.text(max_size=60) | st.sampled_from(NASTY),
    Quality: st.integers(0, 255).map(Quality),
}


def values(cls: type) -> st.SearchStrategy[Any]:
    """A strategy for values of a wire class, with every field drawn from its type."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{part.name: drawn(hints[part.name], name=part.name) for part in fields(cls)})


def drawn(hint: Any, *, name: str = "") -> st.SearchStrategy[Any]:
    """A strategy for fields of this type; instants are within the calendar."""
    inner = [part for part in typing.get_args(hint) if part is not types.NoneType]
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        return st.none() | drawn(inner[0], name=name)
    if origin is tuple:
        return st.lists(drawn(inner[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(drawn(inner[0]), drawn(inner[1]), max_size=4)
    if is_dataclass(hint):
        return values(typing.cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    return INSTANTS if name.endswith("_at") else DRAWN_FROM[hint]


def differential_page(rows: tuple[Differential, ...]) -> Page[Differential]:
    answer = DifferentialList(window=WINDOW, differentials=rows)
    return differentials.page(answer, rows, metric=Metric.TTFT, now_at=NOW_AT)


def some(cls: type) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values(cls), min_size=1, max_size=4).map(tuple)


PAGES = st.one_of(
    some(Differential).map(differential_page),
    some(Standing).map(lambda rows: leaderboard.page(Leaderboard(window=WINDOW, standings=rows))),
    some(Coverage).map(lambda rows: fleet.coverage_page(CoverageList(window=WINDOW, coverage=rows), now_at=NOW_AT)),
    some(Target).map(lambda rows: fleet.targets_page(TargetList(plan_version=1, baseline="a", targets=rows))),
    some(StoredSample).map(lambda rows: samples.page(rows, window=WINDOW, now_at=NOW_AT)),
    some(VantageStatus).map(
        lambda rows: fleet.vantages_page(VantageList(plan_version=1, answered_at=NOW_AT, vantages=rows))
    ),
    some(SpendLine).map(lambda rows: fleet.spend_page(SpendList(spend=rows))),
)
thoroughly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thoroughly
@given(PAGES, st.integers(40, 250))
def test_no_line_is_longer_than_the_screen(page: Page[Any], width: int) -> None:
    """With any names and numbers, a table fits a screen of 60 to 200 columns, also when it continues."""
    table = renderer("table")
    look = RenderOptions(width=width)
    for text in (table.whole(page, look), table.opening(page, look), table.more(page, look)):
        assert all(cell_len(line) <= min(max(width, 60), 200) for line in text.splitlines())


@pytest.mark.parametrize("output", OUTPUTS)
@thoroughly
@given(PAGES)
def test_no_format_has_control_characters(output: str, page: Page[Any]) -> None:
    """Whatever the names contain, nothing moves a cursor, changes a colour or turns the direction of writing."""
    text = renderer(output).whole(page, PLAIN) + renderer(output).more(page, PLAIN)
    assert all(mark.isprintable() or mark == "\n" for mark in text)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "' =1"),
        ("\r=1", "' =1"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1", "a=1"),
        ("\x1b[2J\x9b\u202eabc", " [2J  abc"),
        (["=1", "b"], "'=1;b"),
        (-1.5, "-1.5"),
        (-3, "-3"),
    ],
)
def test_a_spreadsheet_computes_no_text(value: object, cell: str) -> None:
    """A text that it would compute begins with an apostrophe; numbers, and all of it if raw, stay as they are."""
    page = Page(
        schema="isochrone.trees/1",
        title="",
        fields=(Field(header="name", path=("name",)),),
        columns=(),
        rows=({"name": value},),
        record=lambda row: row,
    )
    more = renderer("csv").more
    assert list(csv.reader(io.StringIO(more(page, PLAIN), newline=""))) == [[cell]]
    raw = next(csv.reader(io.StringIO(more(page, RenderOptions(raw=True)), newline="")))
    assert raw == [field_text(value).replace("\r", "\n")]


@thoroughly
@given(PAGES)
def test_json_is_a_document_with_a_schema(page: Page[Any]) -> None:
    """Every answer is strict JSON with schema and rows, and its lines are the same rows."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(renderer("json").whole(page, PLAIN), parse_constant=refuse)
    assert re.fullmatch(r"isochrone\.[a-z]+/\d+", document["schema"])
    assert len(document["rows"]) == len(page.rows)
    assert [json.loads(line) for line in renderer("json").more(page, PLAIN).split("\n")[:-1]] == document["rows"]


@thoroughly
@given(PAGES)
def test_csv_is_rectangular(page: Page[Any]) -> None:
    """A CSV reader finds one line per row, each with as many cells as the header line."""
    lines = list(csv.reader(io.StringIO(renderer("csv").whole(page, PLAIN), newline="")))
    assert len(lines) == 1 + len(page.rows)
    assert {len(line) for line in lines} == {len(page.fields)}


@thoroughly
@given(PAGES)
def test_markdown_tables_are_rectangular(page: Page[Any]) -> None:
    """Every line of a Markdown table has one cell per column, whatever the names contain."""
    for line in renderer("markdown").whole(page, PLAIN).splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", line))) == len(page.columns) + 1


@dataclass(frozen=True, slots=True)
class Tree:
    name: str
    height_us: int | None
    red: bool = False


TREES: Page[Tree] = Page(
    schema="isochrone.trees/1",
    title="trees",
    facts={"forest": "black"},
    fields=wire_fields(Tree),
    columns=(
        Column(heading="tree", text=lambda tree: tree.name, wide=True, style=lambda tree: "red" if tree.red else ""),
        Column(heading="height", unit="ms", text=lambda tree: str(tree.height_us)),
    ),
    rows=(Tree("oak|elm", 5, red=True), Tree("fir", None)),
    group=lambda tree: "leaves" if tree.height_us else "needles",
    notes=("[1] seen",),
)
PICTURES = {
    "table": """\
trees

leaves
tree     height
             ms
oak|elm       5

needles
tree     height
             ms
fir        None

[1] seen
""",
    "json": """\
{
  "schema": "isochrone.trees/1",
  "forest": "black",
  "rows": [
    {
      "name": "oak|elm",
      "height_us": 5,
      "red": true
    },
    {
      "name": "fir",
      "height_us": null,
      "red": false
    }
  ]
}
""",
    "csv": """\
name,height_us,red
oak|elm,5,True
fir,,False
""",
    "markdown": """\
**trees**

### leaves

| tree | height (ms) |
| --- | ---: |
| oak\\|elm | 5 |

### needles

| tree | height (ms) |
| --- | ---: |
| fir | None |

- \\[1\\] seen
""",
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_one_description_gives_every_format(output: str) -> None:
    """The same page has the expected text in each format."""
    assert renderer(output).whole(TREES, PLAIN) == PICTURES[output]


@pytest.mark.parametrize(
    ("output", "opening", "more"),
    [
        (
            "table",
            "tree     height\n             ms\noak|elm       5\nfir        None\n[1] seen\n",
            "oak|elm       5\n",
        ),
        ("json", '{"name": "oak|elm", "height_us": 5, "red": true}\n', '"height_us": null'),
        ("csv", "name,height_us,red\noak|elm,5,True\nfir,,False\n", "oak|elm,5,True\nfir,,False\n"),
        (
            "markdown",
            "| tree | height (ms) |\n| --- | ---: |\n| oak\\|elm | 5 |\n| fir | None |\n",
            "| oak\\|elm | 5 |\n",
        ),
    ],
)
def test_an_answer_can_go_on(output: str, opening: str, more: str) -> None:
    """The opening has the headings; later parts have rows only."""
    assert renderer(output).opening(TREES, PLAIN).startswith(opening)
    assert more in renderer(output).more(TREES, PLAIN)
    assert "height (ms)" not in renderer(output).more(TREES, PLAIN)


@pytest.mark.parametrize(("width", "last"), [(80, "ttft"), (100, "speed"), (120, "rtt")])
def test_later_rows_stand_under_the_first_headings(width: int, last: str) -> None:
    """Later samples are aligned with the headings, however short their names are."""
    table = renderer("table")
    look = RenderOptions(width=width)
    first = table.opening(samples.page(SAMPLES, window=WINDOW, now_at=NOW_AT), look).splitlines()
    later = table.more(samples.page(SAMPLES[:1], window=WINDOW, now_at=NOW_AT), look).splitlines()
    assert first[0].index("region") == later[0].index("us-east-2")
    assert first[0].index("target") == later[0].index("openai/gpt-5-mini")
    assert first[0].endswith(last)


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_nothing_looks_like_nothing(output: str) -> None:
    """An answer without rows prints no table."""
    assert renderer(output).whole(differential_page(()), PLAIN) == ""


def test_nothing_is_still_a_document() -> None:
    """Without rows there is a document and a header; decisions are coloured on terminals only."""
    page = differential_page(())
    assert json.loads(renderer("json").whole(page, PLAIN))["rows"] == []
    assert renderer("csv").whole(page, PLAIN).count("\n") == 1
    page = differential_page(DIFFERENTIALS)
    coloured = renderer("table").whole(page, RenderOptions(colour=True))
    assert "\x1b[32mfaster" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured).split() == renderer("table").whole(page, PLAIN).split()


def test_long_names_fold_and_numbers_do_not() -> None:
    """If the line is too long, the name is folded and every number stays whole."""
    page = leaderboard.page(Leaderboard(window=WINDOW, standings=STANDINGS))
    text = renderer("table").whole(page, RenderOptions(width=80))
    assert "178 … 182" in text
    assert "…" not in text.replace(" … ", "")


@pytest.mark.parametrize(
    ("cell", "notes", "legend"),
    [
        (UNKNOWN, (), [f"{UNKNOWN}: not known"]),
        (f"5 → {UNKNOWN}", (), [f"{UNKNOWN}: not known"]),
        (UNKNOWN, (f"{UNKNOWN}: no budget",), [f"{UNKNOWN}: no budget"]),
        ("5", (), []),
    ],
)
def test_an_unknown_value_has_a_legend(cell: str, notes: tuple[str, ...], legend: list[str]) -> None:
    """A table that shows a dash explains it, unless its page does."""
    page: Page[str] = Page(
        schema="s/1", title="t", fields=(), columns=(Column(heading="h", text=str),), rows=(cell,), notes=notes
    )
    lines = renderer("table").whole(page, RenderOptions(width=80)).splitlines()
    assert [line for line in lines if line.startswith(f"{UNKNOWN}:")] == legend


NO_WINDOW = Window(from_at=0, until_at=1)
RECORDED: list[Page[Any]] = [
    differentials.page(DifferentialList(window=NO_WINDOW), DIFFERENTIALS, metric=Metric.TTFT, now_at=0),
    leaderboard.page(Leaderboard(window=NO_WINDOW, standings=STANDINGS)),
    fleet.targets_page(TARGETS),
    fleet.coverage_page(CoverageList(window=NO_WINDOW, coverage=COVERAGE), now_at=0),
    samples.page((stored(), stored(1, ratelimit=RateLimit(limit_requests=5))), window=NO_WINDOW, now_at=0),
]


def paths(record: dict[str, Any], *, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The path of every leaf of a record; counts and empty objects are leaves."""
    found: set[tuple[str, ...]] = set()
    for name, part in record.items():
        if isinstance(part, dict) and part and name != "outcomes":
            found |= paths(part, above=(*above, name))
        else:
            found.add((*above, name))
    return found


@pytest.mark.parametrize("page", RECORDED, ids=lambda page: page.schema)
def test_csv_says_all_that_json_says(page: Page[Any]) -> None:
    """Every leaf of every record has a column; an unknown object has the columns of its fields."""
    columns = {field.path for field in page.fields}
    for row in page.rows:
        for path in paths(page.record(row)):
            assert any(column[: len(path)] == path for column in columns), path


@pytest.mark.parametrize("page", RECORDED, ids=lambda page: page.schema)
def test_headers_are_unique(page: Page[Any]) -> None:
    """No two columns of CSV have the same header."""
    headers = [field.header for field in page.fields]
    assert len(headers) == len(set(headers))


@pytest.mark.parametrize("page", RECORDED, ids=lambda page: page.schema)
def test_records_are_json(page: Page[Any]) -> None:
    """Every record can be written by a strict JSON writer."""
    assert json.loads(json.dumps([page.record(row) for row in page.rows], allow_nan=False))


def test_a_sample_stands_beside_its_names() -> None:
    """A sample's record is flat: names, RFC 3339, flags by name; NaN and infinite numbers are unknown."""
    record = FORMATS["SampleList"].record(stored(quality=Quality.LAGGED | Quality.REUSED))
    assert record["target"] == "openai/gpt-5-mini"
    assert record["round_at"] == "2026-11-21T08:00:00.000000Z"
    assert record["quality"] == ["lagged", "reused"]
    assert record["ttft_us"] == 318_250
    assert record["ttft_cold_us"] == 318_250 + 26_500
    assert record["dns_us"] is None
    assert "sample" not in record
    row = replace(DIFFERENTIALS[0], shift=math.nan, shift_high=math.inf)
    record = row_record(row)
    assert (record["shift"], record["shift_low"], record["shift_high"]) == (None, 180_100.0, None)


def test_a_header_says_the_unit_its_name_does_not() -> None:
    """Units are in headers unless names have them; a quantile has three columns, empty if it is unknown."""
    headers = [field.header for field in wire_fields(Differential, units={"shift": "us"})]
    assert "shift_us" in headers
    assert "shift" not in headers
    assert "shift" in row_record(DIFFERENTIALS[0])
    fields = {field.header: field for field in wire_fields(Standing)}
    known, unknown = row_record(STANDINGS[0]), row_record(replace(STANDINGS[0], ttft_p95_us=None))
    assert fields["ttft_p95_us.low"].value(known) == 251_000
    assert fields["ttft_p95_us.low"].value(unknown) is None


PAGE = leaderboard.page(Leaderboard(window=WINDOW, order=Order.TTFT, standings=STANDINGS))


def rendered(output: str, *names: str) -> str:
    return renderer(output).whole(select_fields(PAGE, names), RenderOptions())


def test_json_has_the_fields_in_order() -> None:
    """A nested field is whole under its JSON name, or takes all of its columns in CSV."""
    rows = json.loads(rendered("json", "n", "target", "ttft_p50_us", "ttft_p95_us.value"))["rows"]
    assert list(rows[0]) == ["n", "target", "ttft_p50_us", "ttft_p95_us.value"]
    assert rows[0]["ttft_p50_us"]["low"] == 178_200
    assert rows[0]["ttft_p95_us.value"] == 260_300
    lines = list(csv.reader(io.StringIO(rendered("csv", "target", "ttft_p50_us", "n"))))
    columns = [f"ttft_p50_us.{name}" for name in ("value", "low", "high", "n_eff")]
    assert lines[0] == ["target", *columns, "n"]
    assert [*lines[1][:4], lines[1][-1]] == ["deepseek/deepseek-v4-flash", "180000.0", "178200.0", "181900.0", "1431"]


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
    with pytest.raises(UsageError, match="unknown field 'modle'; did you mean 'model'") as caught:
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
