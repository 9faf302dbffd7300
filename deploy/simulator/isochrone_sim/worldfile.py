"""World files: their format and validation. Two tables map each key to a field and to the parser of its value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isochrone_sim.dialects import DIALECTS
from isochrone_sim.errors import WorldError
from isochrone_sim.faults import FAULTS
from isochrone_sim.world import BASELINE_REGION, Model, Offset, Source, World
from isochrone_wire.text import did_you_mean

EXAMPLE: dict[str, Any] = {
    "title": "Two models, one of which fails occasionally",
    "seed": 7,
    "baseline": "us-east-2",
    "regions": {"us-east-2": "US East (Ohio)", "ap-southeast-1": "Singapore"},
    "load_amplitude": 0.12,
    "pace_amplitude": 0.02,
    "models": [
        {
            "id": "swift-1",
            "title": "Swift 1",
            "provider": "acme",
            "ttft_ms": 180,
            "tokens_per_second": 60,
            "usd_per_m_output": 0.25,
            "offsets_ms": {"ap-southeast-1": -30},
            "answer_tokens": 150,
            "jitter_ms": 1.0,
        },
        {
            "id": "thinker-1",
            "provider": "acme",
            "ttft_ms": 600,
            "tokens_per_second": 20,
            "reasoning": True,
            "fixed_temperature": True,
            "efforts": ["low", "high"],
            "fault": "cut",
            "fault_share": 0.05,
            "requests_per_minute": 600,
        },
    ],
}

Read = Callable[[Any], Any]


def _checked(is_valid: Callable[[Any], object], must_be: str, convert: Read = lambda value: value) -> Read:
    def read(value: Any) -> Any:  # noqa: ANN401  # any value in the file
        if not is_valid(value):
            raise ValueError(f"must be {must_be}")
        return convert(value)

    return read


def _number(low: float, high: float = 1e9, convert: Read = float) -> Read:
    kind = f"a number from {low:g} to {high:g}"
    return _checked(lambda value: type(value) in (int, float) and low <= value <= high, kind, convert)


def _whole(low: int) -> Read:
    return _checked(lambda value: type(value) is int and value >= low, f"a whole number of at least {low}")


def _milliseconds(low: float) -> Read:
    return _number(low, 600_000, lambda value: round(value * 1000))


def _one_of(names: Mapping[str, object]) -> Read:
    def read(value: Any) -> str:  # noqa: ANN401  # any value in the file
        if value not in names:
            raise ValueError(f"is unknown{_suggestion(str(value), names)}")
        return str(value)

    return read


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


_text = _checked(_is_text, "a non-empty string")
_flag = _checked(lambda value: isinstance(value, bool), "true or false")
_words = _checked(
    lambda value: value and isinstance(value, list) and all(map(_is_text, value)), "a list of at least one word", tuple
)
_list = _checked(lambda value: value and isinstance(value, list), "a list of at least one model")
_regions = _checked(
    lambda value: value and isinstance(value, dict) and all(map(_is_text, value.values())),
    "a table of names and titles",
)
_offsets = _checked(
    lambda value: isinstance(value, dict),
    "a table of regions and milliseconds",
    lambda value: {region: Offset(_milliseconds(-600_000)(ms), Source.CHOSEN) for region, ms in value.items()},
)
_WORLD_KEYS: dict[str, tuple[str, Read]] = {
    "title": ("title", _text),
    "seed": ("seed", _whole(0)),
    "baseline": ("baseline", _text),
    "regions": ("regions", _regions),
    "load_amplitude": ("load_amplitude", _number(0, 0.5)),
    "pace_amplitude": ("pace_amplitude", _number(0, 0.5)),
    "models": ("models", _list),
}
_MODEL_KEYS: dict[str, tuple[str, Read]] = {
    "id": ("id", _text),
    "title": ("title", _text),
    "provider": ("provider", _text),
    "ttft_ms": ("ttft_us", _milliseconds(1)),
    "tokens_per_second": ("tokens_per_second", _number(0.1, 10_000)),
    "usd_per_m_output": ("usd_per_m_output", _number(0)),
    "offsets_ms": ("offsets", _offsets),
    "reasoning": ("reasoning", _flag),
    "fixed_temperature": ("fixed_temperature", _flag),
    "efforts": ("efforts", _words),
    "dialect": ("dialect", _one_of(DIALECTS)),
    "answer_tokens": ("answer_tokens", _whole(1)),
    "jitter_ms": ("jitter_us", _milliseconds(0)),
    "steady": ("steady", _flag),
    "fault": ("fault", _one_of(FAULTS)),
    "fault_share": ("fault_share", _number(0, 1)),
    "requests_per_minute": ("requests_per_minute", _whole(1)),
    "tokens_per_minute": ("tokens_per_minute", _whole(1)),
}
_MODEL_NEEDS = ("id", "provider", "ttft_ms", "tokens_per_second")


def parse_world(document: Mapping[str, Any], *, text: str = "") -> World:
    """Return the world that a document describes. `text` is the source of the document, for line numbers.

    Raises `WorldError` with all problems, one per line.
    """
    reader = _TableReader(text=text)
    values = reader.table(document, _WORLD_KEYS, needs=("models",), where="")
    rows = [row if isinstance(row, dict) else {} for row in values.pop("models", [])]
    models = [reader.model(row, f"models[{number}]") for number, row in enumerate(rows)]
    baseline = values.get("baseline", BASELINE_REGION)
    regions = values.pop("regions", None) or {baseline: baseline}
    world = World(
        title=values.pop("title", "A custom world"),
        source="a world file",
        regions=regions,
        models={model.id: model for model in models if model},
        **values,
    )
    reader.problems += _contradictions(world, [row.get("id") for row in rows])
    if reader.problems:
        raise WorldError("\n".join(f"  {problem}" for problem in reader.problems))
    return world


@dataclass(slots=True)
class _TableReader:
    text: str
    problems: list[str] = field(default_factory=list)

    def table(
        self, row: Mapping[str, Any], keys: Mapping[str, tuple[str, Read]], *, needs: tuple[str, ...], where: str
    ) -> dict[str, Any]:
        values = {}
        for key, value in row.items():
            if key not in keys:
                number = next((n for n, line in enumerate(self.text.splitlines(), 1) if key in line), None)
                line = f" in line {number}" if number else ""
                self.problems.append(f"{where}{key}: unknown key{line}{_suggestion(key, keys)}")
                continue
            name, read = keys[key]
            try:
                values[name] = read(value)
            except ValueError as error:
                self.problems.append(f"{where}{key}: {value!r} {error}")
        self.problems += [f"{where}{key}: missing" for key in needs if key not in row]
        return values

    def model(self, row: Mapping[str, Any], where: str) -> Model | None:
        before = len(self.problems)
        values = self.table(row, _MODEL_KEYS, needs=_MODEL_NEEDS, where=f"{where}.")
        if len(self.problems) > before:
            return None
        return Model(**{"title": values["id"], **values})


def _contradictions(world: World, ids: list[Any]) -> list[str]:
    """Return problems between keys that are valid on their own."""
    problems = [] if world.baseline in world.regions else [f"baseline: {world.baseline!r} is not one of the regions"]
    problems += [f"models: duplicate id {name!r}" for name in sorted({n for n in ids if n and ids.count(n) > 1})]
    for model in world.models.values():
        for region in model.offsets:
            if region not in world.regions:
                problems.append(f"{model.id}: {region!r} is not one of the regions{_suggestion(region, world.regions)}")
            elif model.ttft_us_in(region) <= 0:
                problems.append(f"{model.id}: from {region}, the first token would precede the request")
    return problems


def _suggestion(name: str, known: Mapping[str, object]) -> str:
    return did_you_mean(name, known) or f"; known: {', '.join(known)}"
