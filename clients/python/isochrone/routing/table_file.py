"""The last tables on disk, so that a restarted service can route before it reaches a collector."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from isochrone.routing.documents import TableError, read_entry, read_table
from isochrone_common.files import replace_file
from isochrone_wire.json_format import fields_to_json
from isochrone_wire.routes import RouteEntry, RouteTable

_KEPT = ("rank", "weight", "target", "provider", "model", "dialect", "base_url", "credential_ref")


def path_of(folder: Path, url: str, region: str) -> Path:
    """The file for a collector and a region."""
    digest = hashlib.sha256(f"{url}\n{region}".encode()).hexdigest()[:16]
    return folder.expanduser() / f"tables-{digest}.json"


def load(path: Path) -> tuple[Mapping[str, RouteTable], tuple[RouteEntry, ...]]:
    """Read tables, by their JSON as it was received, and members of earlier tables, which a static order may name. What
    cannot be read counts as nothing. Raises `OSError`.
    """
    try:
        document = json.loads(path.read_bytes())
        tables = {text: read_table(text) for text in document["tables"]}
        return tables, tuple(read_entry(one) for one in document["entries"])
    except (ValueError, KeyError, TypeError, TableError):
        return {}, ()


def save(path: Path, texts: Iterable[str], entries: Iterable[RouteEntry]) -> None:
    """Write the JSON of the tables, and the entries. Raises `OSError`."""
    plain = [fields_to_json(entry, _KEPT) for entry in entries]
    document = {"schema": "isochrone.routing/1", "tables": list(texts), "entries": plain}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, json.dumps(document).encode())
