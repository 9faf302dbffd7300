"""Worlds and faults as tables for people and as JSON for programs."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from isochrone_sim.faults import FAULTS
from isochrone_sim.world import Model, Source, World

_MARKS = {Source.PUBLISHED: " ", Source.ASSUMED: "*", Source.CHOSEN: " "}


def world_table(world: World) -> str:
    """Return the models with their time to first token in each region, and its difference from the baseline."""
    others = [region for region in world.regions if region != world.baseline]
    heads = ["model", "provider", "tok/s", "$/M out", world.baseline, *others]
    rows = [_world_row(model, world, others) for model in world.models.values()]
    lines = [world.title, f"source: {world.source}", "", *_aligned([heads, *rows], left=2), ""]
    lines.append(f"Median time to first token in ms at average load, and its difference from {world.baseline}.")
    lines.append("* assumed; the others are published or chosen.")
    return "\n".join(lines)


def differential_table(world: World, baseline: str, region: str) -> str:
    """Return the true difference of two regions for every model, smallest first."""
    models = sorted(world.models.values(), key=lambda model: model.differential_us(region, baseline))
    rows = [
        [
            model.id,
            _ms(model.ttft_us_in(baseline)),
            _ms(model.ttft_us_in(region)),
            _signed_ms(model.differential_us(region, baseline)),
            _source(model, baseline, region),
        ]
        for model in models
    ]
    lines = _aligned([["model", baseline, region, "difference", "source"], *rows], left=1)
    return "\n".join([*lines, "", f"{region} minus {baseline}, time to first token in ms; independent of load."])


def faults_table() -> str:
    """Return every fault with its description, and whether a client should still count the response as a success."""
    rows = [[fault.name, "fine" if fault.fine else "broken", fault.sentence] for fault in FAULTS.values()]
    lines = _aligned([["fault", "is", "what happens"], *rows], left=3)
    return "\n".join([*lines, "", "A client should count fine responses as successes, and broken ones as failures."])


def endpoints_table(endpoints: Mapping[str, str], model: str, *, ca: str | None = None) -> str:
    """Return the base URL of every region and an example request; `ca` is the certificate to trust."""
    base_url = next(iter(endpoints.values()))
    body = f'{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Hello"}}]}}'
    trust = f"--cacert {ca} " if ca else ""
    return "\n".join(
        [
            *_aligned([["client region", "base URL"], *map(list, endpoints.items())], left=2),
            "",
            "Try:",
            f"  curl {trust}-N {base_url}/chat/completions -H 'content-type: application/json' \\",
            f"    -d '{body}'",
            f"  curl {trust}{base_url.removesuffix('/v1')}/truth",
            "",
            "Press Ctrl-C to stop.",
        ]
    )


def world_json(world: World) -> dict[str, Any]:
    """Return the world for programs; durations in microseconds, `differential_us` against the baseline."""
    return {
        "schema": "isochrone-sim.world/1",
        "title": world.title,
        "source": world.source,
        "baseline": world.baseline,
        "regions": dict(world.regions),
        "models": [_model_json(model, world) for model in world.models.values()],
    }


def differentials_json(world: World, baseline: str, region: str) -> dict[str, Any]:
    """Return the true difference of two regions by model, in microseconds."""
    return {
        "schema": "isochrone-sim.differential/1",
        "baseline": baseline,
        "region": region,
        "differential_us": {m.id: m.differential_us(region, baseline) for m in world.models.values()},
        "offset_source": {m.id: _source(m, baseline, region) for m in world.models.values()},
    }


def faults_json() -> dict[str, Any]:
    """Return the faults for programs."""
    rows = [
        {"name": f.name, "model": f"fault-{f.name}", "fine": f.fine, "sentence": f.sentence} for f in FAULTS.values()
    ]
    return {"schema": "isochrone-sim.faults/1", "faults": rows}


def _model_json(model: Model, world: World) -> dict[str, Any]:
    return {
        "id": model.id,
        "title": model.title,
        "provider": model.provider,
        "dialect": model.dialect,
        "reasoning": model.reasoning,
        "fault": model.fault,
        "tokens_per_second": model.tokens_per_second,
        "usd_per_m_output": model.usd_per_m_output,
        "ttft_us": {region: model.ttft_us_in(region) for region in world.regions},
        "differential_us": {region: model.differential_us(region, world.baseline) for region in world.regions},
        "offset_source": {region: offset.source.value for region, offset in model.offsets.items()},
    }


def _world_row(model: Model, world: World, others: Iterable[str]) -> list[str]:
    marks = {region: _MARKS[offset.source] for region, offset in model.offsets.items()}
    cells = [f"{_ms(model.ttft_us_in(r))} ({_signed_ms(model.offset_us(r))}){marks.get(r, ' ')}" for r in others]
    rate, price = f"{model.tokens_per_second:g}", f"{model.usd_per_m_output:.2f}"
    return [model.id, model.provider, rate, price, _ms(model.ttft_us_in(world.baseline)), *cells]


def _source(model: Model, *regions: str) -> str:
    found = {model.offsets[region].source for region in regions if region in model.offsets}
    weakest = next((source for source in (Source.ASSUMED, Source.CHOSEN, Source.PUBLISHED) if source in found), None)
    return weakest.value if weakest else "none"


def _ms(us: int) -> str:
    return f"{us / 1000:g}"


def _signed_ms(us: int) -> str:
    return f"{us / 1000:+g}" if us else "0"


def _aligned(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Align rows into columns with two spaces between them; the first `left` columns are left-aligned."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return [
        "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    ]
