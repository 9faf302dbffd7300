"""The last tables on disk, so that a restarted service can route before it reaches a collector."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isochrone.routing.documents import TableError, read_entry, read_table
from isochrone_common.files import replace_file
from isochrone_wire.json_format import fields_to_json
from isochrone_wire.routes import RouteEntry, RouteTable

_SCHEMA = "isochrone.routing/1"
_KEPT = ("rank", "weight", "target", "provider", "model", "dialect", "base_url", "credential_ref")


@dataclass(frozen=True, slots=True)
class KeptTables:
    """Tables, with their JSON as it was received, and members of earlier tables, which a static order may name."""

    tables: Mapping[str, RouteTable] = field(default_factory=dict)
    entries: Iterable[RouteEntry] = ()


def path_of(folder: Path, url: str, region: str) -> Path:
    """The file for a collector and a region."""
    digest = hashlib.sha256(f"{url}\n{region}".encode()).hexdigest()[:16]
    return folder.expanduser() / f"tables-{digest}.json"


def load(path: Path) -> KeptTables:
    """Read what was kept; what cannot be read counts as nothing. Raises `OSError`."""
    try:
        document = json.loads(path.read_bytes())
        tables = {text: read_table(text) for text in document["tables"]}
        return KeptTables(tables, tuple(read_entry(one) for one in document["entries"]))
    except (ValueError, KeyError, TypeError, TableError):
        return KeptTables()


def save(path: Path, texts: Iterable[str], entries: Iterable[RouteEntry]) -> None:
    """Write the JSON of the tables, and the entries. Raises `OSError`."""
    plain = [fields_to_json(entry, _KEPT) for entry in entries]
    document = {"schema": _SCHEMA, "tables": list(texts), "entries": plain}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, json.dumps(document).encode())
