"""JSON of the value classes: every value survives it, and what cannot be a value is refused by name."""

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

from isochrone_wire.answers import Proportion, Quantile
from isochrone_wire.fleet import SampleList
from isochrone_wire.insights import Incident, Leaderboard
from isochrone_wire.json_format import JsonError, from_json, to_json_value
from isochrone_wire.model import Quality, Sample
from isochrone_wire.queries.documents import document, read_document
from testdata.insights import INCIDENTS

MODULES = (
    "answers",
    "fleet",
    "insights",
    "model",
    "operations",
    "queries.series",
    "queries.status",
    "routes",
)
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
    """A number that is not finite is null in JSON: NaN again, or `None` where a value may be missing."""
    share = from_json(Proportion, to_json_value(Proportion(value=inf, low=nan, high=1, n=2)))
    assert isnan(share.value)
    assert (isnan(share.low), share.high) == (True, 1.0)
    assert from_json(Quantile, to_json_value(Quantile(value=1.0, low=-inf))) == Quantile(value=1.0)


def test_unknown_fields_are_ignored() -> None:
    """A field of a later version changes nothing, and a field that is missing has its default."""
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
        (Incident, {**to_json_value(INCIDENTS.incidents[0]), "id": "alert_1"}, "id: 'alert_1' does not begin with"),
        (
            Incident,
            {**to_json_value(INCIDENTS.incidents[0]), "classes": {"ok": "1"}},
            "classes.ok: '1' is not an integer",
        ),
        (Leaderboard, {"window": {"from_at": 1}}, "window.from_at: 1 is not text"),
        (
            Leaderboard,
            {**BOARD, "standings": [STANDING, {**STANDING, "n": "x"}]},
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
        read_document(Leaderboard, data)


@settings(max_examples=10, deadline=None)
@given(values_of(SampleList))
def test_samples_survive_their_document(samples: SampleList) -> None:
    """A sample is flat in its document, and whole again when it is read."""
    found = read_document(SampleList, json.loads(json.dumps(document(samples))))
    assert sorted(found.samples, key=repr) == sorted(samples.samples, key=repr)
    assert replace(found, samples=(), resume_at=0) == replace(samples, samples=(), resume_at=0)
