"""The default world: published figures where available, and stated assumptions otherwise.

Four models have a published difference between Singapore and US East, -16 % to -20 % of the US East figure. The other
models are also hosted in Asia and are assumed to gain 16 %. There are no published figures for Frankfurt: it is assumed
to add 25 ms for the distance and 5 % for more distant hosts. Assumed figures are rounded to 5 ms.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from math import floor
from typing import Any

from isochrone_sim.world.world import Model, Offset, Region, Source, World

_MS_US = 1_000
_ROUNDED_TO_US = 5 * _MS_US
# region: (fixed part in microseconds, share of the baseline's time to first token)
_ASSUMED = {"ap-southeast-1": (0, -0.16), "eu-central-1": (25 * _MS_US, 0.05)}


def default_world() -> World:
    """Return the world of `published.json`."""
    document = json.loads(files("isochrone_sim.world").joinpath("published.json").read_text("utf-8"))
    return published_world(document)


def published_world(document: Mapping[str, Any]) -> World:
    """Return the world of a document like `published.json`, with an offset for every model in every region."""
    differences = document["published_differences_ms"]
    models = [_model(row, differences) for row in document["models"]]
    return World(
        title=document["title"],
        source=document["source"],
        baseline=document["baseline"],
        regions={name: Region(name=name, title=title) for name, title in document["regions"].items()},
        models={model.id: model for model in models},
    )


def assumed_offset_us(region: str, ttft_us: int) -> int:
    """Return the assumed offset of a region for a model with this baseline `ttft_us`; both in microseconds."""
    fixed_us, share = _ASSUMED[region]
    return floor((fixed_us + share * ttft_us) / _ROUNDED_TO_US + 0.5) * _ROUNDED_TO_US


def _model(row: Mapping[str, Any], differences: Mapping[str, Mapping[str, int]]) -> Model:
    ttft_us = row["ttft_ms"] * _MS_US
    offsets = {region: Offset(assumed_offset_us(region, ttft_us), Source.ASSUMED) for region in _ASSUMED}
    for region, published in differences.items():
        if row["id"] in published:
            offsets[region] = Offset(published[row["id"]] * _MS_US, Source.PUBLISHED)
    return Model(
        id=row["id"],
        title=row["title"],
        provider=row["provider"],
        ttft_us=ttft_us,
        tokens_per_second=float(row["tokens_per_second"]),
        usd_per_m_output=row["usd_per_m_output"],
        offsets=offsets,
        reasoning=row.get("reasoning", False),
        fixed_temperature=row.get("fixed_temperature", False),
    )
