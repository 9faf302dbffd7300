"""Envoy configuration files: an RDS response and a CDS response, as files that Envoy can watch."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from isochrone_common import envoy
from isochrone_wire.routes import RegionTables

CLUSTERS = "clusters"
"""The part of the second file's name before the suffix."""


def render(tables: RegionTables) -> dict[str, str]:
    """The RDS response and, under `clusters`, the CDS response."""
    return {CLUSTERS: _answer(tables, envoy.clusters(tables)), "": _answer(tables, [envoy.route_configuration(tables)])}


def read_metadata(text: str) -> Iterator[Mapping[str, str]]:
    """The metadata of the route configuration."""
    (routes,) = json.loads(text)["resources"]
    yield from routes["metadata"]["filter_metadata"]["isochrone"]["tables"]


def _answer(tables: RegionTables, resources: list[dict[str, Any]]) -> str:
    document = {"version_info": str(tables.generation), "resources": resources}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"
