import json
from collections.abc import Iterator, Mapping

from isochrone_wire.json_format import to_json_value
from isochrone_wire.routes import RegionTables


def render(tables: RegionTables) -> dict[str, str]:
    """One JSON document with every field except the instant of the request."""
    plain = {name: value for name, value in to_json_value(tables).items() if name != "answered_at"}
    return {"": json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2) + "\n"}


def read_metadata(text: str) -> Iterator[Mapping[str, str]]:
    """The tables of an export."""
    yield from json.loads(text)["tables"]
