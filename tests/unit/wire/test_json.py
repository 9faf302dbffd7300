"""JSON of the value classes: every value survives it, documents have one format, other data are refused."""

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import IntFlag
from math import inf, isnan, nan
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.fake_collector import COVERAGE, DIFFERENTIALS, SAMPLES, SPEND, STANDINGS, TARGETS, VANTAGES, WINDOW
from isochrone_wire import insights
from isochrone_wire.answers import DifferentialList, Metric, Proportion, Quantile, Window
from isochrone_wire.fleet import CoverageList, SampleList, SpendList
from isochrone_wire.json_format import JsonError, from_json, json_text, to_json_value
from isochrone_wire.model import DAY_US, Batch, Outcome, Quality, Sample, Vantage
from isochrone_wire.queries.documents import FORMATS, document, read_document
from isochrone_wire.routes import RouteEventList
from testdata import insights as examples
from testdata.routes import EVENTS

MODULES = ("answers", "fleet", "insights", "model", "operations", "queries.series", "queries.status", "routes")
VALUE_CLASSES = [
    cls
    for module in map(importlib.import_module, [f"isochrone_wire.{name}" for name in MODULES])
    for cls in vars(module).values()
    if isinstance(cls, type) and is_dataclass(cls) and cls.__module__ == module.__name__
]
# The others are parts of these.
OUTERMOST = [
    cls
    for cls in VALUE_CLASSES
    if not any(re.search(rf"\b{cls.__name__}\b", str(other.__annotations__)) for other in VALUE_CLASSES)
]
# From 1970 to the end of the year 9999.
INSTANTS = st.integers(min_value=0, max_value=253_402_300_799_999_999)
IDS = st.integers(min_value=1, max_value=2**63 - 1)
SAMPLE = to_json_value(Sample(target_id=1, round_at=2, outcome="ok", dispatched_at=3))  # type: ignore[arg-type]
INCIDENT = to_json_value(examples.INCIDENTS.incidents[0])
STANDING = {"region": "a", "rank": 1, "target": "t", "provider": "p", "model": "m", "n": 0, "failed": 0}
BOARD = {
    "schema": "isochrone.leaderboard/1",
    "window": {"from_at": "2026-11-01T00:00Z", "until_at": "2026-11-02T00:00Z"},
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the wire, without numbers that JSON cannot express."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return st.none() | values_of(next(part for part in arguments if part is not NoneType))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=5), values_of(arguments[1]), max_size=2)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        cls: Any = hint
        return st.builds(cls, **{one.name: values_of_field(hint, one.name, hints[one.name]) for one in fields(hint)})
    if issubclass(hint, IntFlag):
        return st.integers(min_value=0, max_value=2 ** len(hint) - 1).map(hint)
    return st.floats(allow_nan=False, allow_infinity=False) if hint is float else st.from_type(hint)


def values_of_field(cls: Any, name: str, hint: Any) -> st.SearchStrategy[Any]:
    """Values of one field of a class: an instant, an id, or any value of its type."""
    if name == "id" and hasattr(cls, "ID_PREFIX"):
        return IDS
    if name.endswith("_at"):
        return st.none() | INSTANTS if NoneType in get_args(hint) else INSTANTS
    return values_of(hint)


@pytest.mark.parametrize("cls", OUTERMOST, ids=lambda cls: cls.__name__)
def test_every_value_survives_json(cls: type) -> None:
    """from_json(type(v), to_json_value(v)) == v, through real text, for every value class."""

    @settings(max_examples=10, deadline=None)
    @given(values_of(cls))
    def survives(value: Any) -> None:
        text = json.dumps(to_json_value(value), allow_nan=False)
        assert from_json(cls, json.loads(text)) == value

    survives()


def test_numbers_that_json_lacks() -> None:
    """A number that JSON lacks is null; fields of a later version change nothing, missing ones have defaults."""
    share = from_json(Proportion, to_json_value(Proportion(value=inf, low=nan, high=1, n=2)))
    assert isnan(share.value)
    assert (isnan(share.low), share.high) == (True, 1.0)
    assert from_json(Quantile, to_json_value(Quantile(value=1.0, low=-inf))) == Quantile(value=1.0)
    assert from_json(Quantile, {"value": 1, "unit": "us"}) == Quantile(value=1.0)
    assert from_json(Sample, {**SAMPLE, "quality": ["reused", "cached"]}).quality == Quality.REUSED | Quality.CACHED


@pytest.mark.parametrize(
    ("cls", "data", "message"),
    [
        (Quantile, {"value": "fast"}, "value: 'fast' is not a number"),
        (Quantile, {"value": True}, "value: True is not a number"),
        (Quantile, {}, "value: is missing"),
        (Quantile, [1], r"\[1\] is not an object"),
        (Quantile, None, "None is not an object"),
        (Sample, {**SAMPLE, "dns_us": 1.5}, "dns_us: 1.5 is not an integer"),
        (Sample, {**SAMPLE, "chunks": None}, "chunks: None is not an integer"),
        (Sample, {**SAMPLE, "outcome": "odd"}, "outcome: 'odd' is not a valid Outcome"),
        (Sample, {**SAMPLE, "quality": ["odd"]}, "quality: 'odd' is not a valid Quality"),
        (Sample, {**SAMPLE, "quality": [["odd"]]}, r"quality: \['odd'\] is not text"),
        (Sample, {**SAMPLE, "round_at": 5}, "round_at: 5 is not text"),
        (Sample, {**SAMPLE, "round_at": "2026-11-01T00:00:00"}, "round_at: '2026-11-01T00:00:00' has no offset"),
        (Sample, {**SAMPLE, "round_at": "soon"}, "round_at: Invalid isoformat string: 'soon'"),
        (insights.Incident, {**INCIDENT, "id": "alert_1"}, "id: 'alert_1' does not begin with"),
        (insights.Incident, {**INCIDENT, "classes": {"ok": "1"}}, "classes.ok: '1' is not an integer"),
        (insights.Leaderboard, {"window": {"from_at": 1}}, "window.from_at: 1 is not text"),
        (
            insights.Leaderboard,
            {**BOARD, "standings": [STANDING, STANDING | {"n": "x"}]},
            "standings.1.n: 'x' is not an integer",
        ),
    ],
)
def test_other_data_are_refused_by_field(cls: type, data: object, message: str) -> None:
    """What a class cannot represent is an error that begins with the path of the field."""
    with pytest.raises(JsonError, match=f"^{message}"):
        from_json(cls, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**BOARD, "rows": [STANDING, {}]}, "rows.1.failed: is missing"),
        ({**BOARD, "schema": "isochrone.leaderboard/2", "rows": []}, "schema: 'isochrone.leaderboard/2' is not"),
        (BOARD, "rows: None is not a list"),
        ([], r"\[\] is not an object"),
    ],
)
def test_a_document_of_another_form_is_refused(data: object, message: str) -> None:
    """A document of another version, or with a wrong row, is an error that begins with the field of the document."""
    with pytest.raises(JsonError, match=f"^{message}"):
        read_document(insights.Leaderboard, data)


@settings(max_examples=10, deadline=None)
@given(values_of(SampleList))
def test_samples_survive_their_document(samples: SampleList) -> None:
    """A sample is flat in its document, and whole again when it is read."""
    found = read_document(SampleList, json.loads(json.dumps(document(samples))))
    assert sorted(found.samples, key=repr) == sorted(samples.samples, key=repr)
    assert replace(found, samples=(), resume_at=0) == replace(samples, samples=(), resume_at=0)


ANSWERS = (
    examples.ALERTS,
    examples.DRIFT,
    CoverageList(window=WINDOW, coverage=COVERAGE),
    DifferentialList(window=WINDOW, differentials=DIFFERENTIALS),
    examples.INCIDENTS,
    insights.LatencyBudgetList(window=WINDOW, budgets=examples.LATENCY_BUDGETS),
    insights.Leaderboard(window=WINDOW, standings=STANDINGS),
    examples.RATE_LIMITS,
    insights.RegionCostList(window=WINDOW, costs=examples.REGION_COSTS),
    RouteEventList(window=WINDOW, events=EVENTS),
    SampleList(window=WINDOW, samples=SAMPLES),
    examples.SERIES,
    insights.SimulationList(window=WINDOW, members=examples.MEMBERS, simulations=examples.SIMULATIONS),
    SpendList(spend=SPEND),
    examples.STATUS,
    TARGETS,
    insights.TierList(window=WINDOW, tiers=examples.TIERS),
    VANTAGES,
)


def test_formats_are_of_answers() -> None:
    """Each format names a class of answers and the fields that it has."""
    assert {type(answer).__name__ for answer in ANSWERS} == set(FORMATS)
    for answer in ANSWERS:
        found = FORMATS[type(answer).__name__]
        assert {found.rows, *found.omitted} <= {field.name for field in fields(answer)}
    assert len({found.schema for found in FORMATS.values()}) == len(FORMATS)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_a_document_has_every_row(answer: object) -> None:
    """The schema comes first, the rows come last, and each row of the answer is one of them."""
    found, written = FORMATS[type(answer).__name__], document(answer)
    assert [*written] == ["schema", *found.facts(answer), "rows"]
    assert len(written["rows"]) == len(getattr(answer, found.rows)) > 0


def test_rows_have_an_order() -> None:
    """Rows are sorted, ids are text, also within a row, and a sample's fields are beside its names."""
    one = document(VANTAGES)
    assert one == document(replace(VANTAGES, vantages=VANTAGES.vantages[::-1]))
    assert [row["region"] for row in one["rows"]] == sorted(row["region"] for row in one["rows"])
    opened = [row["recovered_at"] is not None for row in document(examples.INCIDENTS)["rows"]]
    assert opened == sorted(opened)
    rows = document(examples.INCIDENTS)["rows"]
    assert all(row["id"].startswith("incident_") for row in rows)
    assert [one["id"][:8] for row in rows for one in row["silences"]][:1] == ["silence_"]
    row = document(SampleList(window=WINDOW, samples=SAMPLES))["rows"][0]
    assert {"target", "vantage", "ttft_us", "ttft_cold_us", "quality"} <= set(row)
    assert "sample" not in row


AT = 1_700_000_000_123_456
QUANTILE = Quantile(value=412_345.1, low=None, high=1e22, n_eff=nan)
FULL_STANDING = insights.Standing(
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
JSON_SAMPLE = Sample(
    target_id=1, round_at=AT, dispatched_at=AT, outcome=Outcome.OK, ttft_us=400_000, quality=Quality.CACHED
)


@pytest.mark.parametrize(
    "value",
    [
        QUANTILE,
        FULL_STANDING,
        insights.Leaderboard(window=Window(from_at=0, until_at=DAY_US), standings=(FULL_STANDING, FULL_STANDING)),
        JSON_SAMPLE,
        Batch(vantage=Vantage(name="v", region="r"), epoch=1, seq=2, samples=(JSON_SAMPLE,)),
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
    assert '"newest_at":"2023-11-14T22:13:20.123456Z"' in json_text(FULL_STANDING)
    assert json_text(QUANTILE) == '{"value":412345.1,"low":null,"high":1e+22,"n_eff":null}'
