"""The filter of single samples: the words of a text, all of which must hold, as a condition of SQL.

`ttft>500 outcome:timed_out,stalled -region:eu-*` is: a first token after more than 500 ms, one of two outcomes, and no
region whose name begins so. Names and texts may have `*` and `?`; a text with spaces or commas is in double quotes.
Durations are in milliseconds, or have a unit. What a sample does not have satisfies no word, and each one after a `-`.
"""

import re
from collections.abc import Iterable, Mapping

from psycopg import sql

from isochrone_collector.errors import BadRequest
from isochrone_collector.names import matching
from isochrone_collector.store.probe_queries import EXPRESSIONS
from isochrone_collector.store.samples import EVERY_SAMPLE, NUMBERS, TEXTS, SampleFilter
from isochrone_wire.model import Outcome
from isochrone_wire.text import same_name, shortened, unknown

_EXAMPLE = "write for example `ttft>500 outcome:timed_out region:eu-*`"
_QUOTE = '"'
_MAX_CHARS, _MAX_WORDS, _MAX_SHOWN = 1_000, 20, 60
_WORD = re.compile(r'(?:"[^"]*"|[^\s"])+')
_PARTS = re.compile(r"(-?)(\w[\w-]*)(>=|<=|[:=<>])(.*)", re.DOTALL)
_VALUE = re.compile(r'(?:"[^"]*"|[^,"])+')
_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(us|ms|s|)")
_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "": 1_000}
_LIKE = str.maketrans({"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"})

_NUMBERS = {name.removesuffix("_us"): name for name in (*NUMBERS, *EXPRESSIONS)}
_NAMES = {"target": "target_id", "region": "region", "outcome": "outcome"}
_TEXTS = {"vantage": sql.Identifier("vantage", "name"), **{name: sql.Identifier("sample", name) for name in TEXTS}}
_FIELDS = (*_NAMES, *_TEXTS, *_NUMBERS)


class _WrongWord(ValueError):  # noqa: N818  # becomes a `BadRequest` with the place of the word
    pass


def parse(text: str, *, targets: Mapping[int, str], regions: Iterable[str]) -> SampleFilter:
    """Return the filter that a text states, given the known targets by their ids, and the regions. Raises
    `BadRequest` with the place of the word that is wrong.
    """
    words = list(_WORD.finditer(text))
    if len(text) > _MAX_CHARS or len(words) > _MAX_WORDS:
        raise BadRequest(f"a filter has at most {_MAX_CHARS} characters and {_MAX_WORDS} words")
    if text.count(_QUOTE) % 2:
        place = text.rindex(_QUOTE) + 1
        raise BadRequest(f"filter, character {place}: the quotation mark is not closed", hint=_EXAMPLE)
    known: Mapping[str, Mapping[str, object]] = {
        "target": {name: target_id for target_id, name in targets.items()},
        "region": {name: name for name in regions},
        "outcome": {name.value: name.value for name in Outcome},
    }
    conditions: list[sql.Composable] = [EVERY_SAMPLE.condition]
    parameters: dict[str, object] = {}
    for word in words:
        name = f"filter_{word.start()}"
        try:
            condition, parameters[name] = _condition(word[0], sql.Placeholder(name), known)
        except _WrongWord as error:
            raise BadRequest(f"filter, character {word.start() + 1}: {error}", hint=_EXAMPLE) from None
        conditions.append(condition)
    return SampleFilter(sql.SQL(" AND ").join(conditions), parameters)


def _condition(
    word: str, value: sql.Placeholder, known: Mapping[str, Mapping[str, object]]
) -> tuple[sql.Composable, object]:
    parts = _PARTS.fullmatch(word)
    if parts is None:
        raise _WrongWord(f"{_shown(word)} is not a field, one of : = < > <= >=, and a value")
    excludes, given, sign, stated = parts.groups()
    name = same_name(given, _FIELDS)
    if name is None:
        raise _WrongWord(unknown("field", given, _FIELDS))
    if name in _NUMBERS:
        condition, found = _comparison(name, sign, stated, value)
    else:
        patterns = [one.replace(_QUOTE, "") for one in _VALUE.findall(stated)]
        if sign != ":" or not any(patterns):
            raise _WrongWord(f"{_shown(word)}: {name} takes a colon and names, such as {name}:a,b*")
        condition, found = _match(name, patterns, value, known)
    return (sql.SQL("NOT coalesce({}, false)").format(condition) if excludes else condition), found


def _comparison(name: str, sign: str, stated: str, value: sql.Placeholder) -> tuple[sql.Composable, object]:
    number, column = _NUMBER.fullmatch(stated), _NUMBERS[name]
    is_duration = column.endswith("_us")
    if number is None or (number[2] and not is_duration):
        units = " of milliseconds, or one with us, ms or s" if is_duration else ""
        raise _WrongWord(f"{name}: {_shown(stated)} is not a number{units}")
    expression = sql.SQL(EXPRESSIONS[column]) if column in EXPRESSIONS else sql.Identifier("sample", column)
    compare = sql.SQL(f"{{}} {sign.replace(':', '=')} {{}}::float8").format(expression, value)
    return compare, float(number[1]) * (_UNITS_US[number[2]] if is_duration else 1)


def _match(
    name: str, patterns: list[str], value: sql.Placeholder, known: Mapping[str, Mapping[str, object]]
) -> tuple[sql.Composable, object]:
    if name in _TEXTS:
        like = [one.translate(_LIKE) for one in patterns]
        return sql.SQL("{} ILIKE ANY({}::text[])").format(_TEXTS[name], value), like
    found = {one: matching(one, known[name]) or matching(f"*/{one}", known[name]) for one in patterns}
    if missing := next((pattern for pattern, names in found.items() if not names), None):
        raise _WrongWord(unknown(name, missing, known[name]))
    condition = sql.SQL("{} = ANY({})").format(sql.Identifier("sample", _NAMES[name]), value)
    return condition, [known[name][one] for names in found.values() for one in names]


def _shown(text: str) -> str:
    return repr(shortened(text, _MAX_SHOWN))
