"""The world: regions, models, and their true differences, which a measurement should find. All values are frozen.

The default world has published figures where available, and stated assumptions otherwise: four models have a published
difference between Singapore and US East, -16 % to -20 % of the US East figure. The other models are also hosted in Asia
and are assumed to gain 16 %. There are no published figures for Frankfurt: it is assumed to add 25 ms for the distance
and 5 % for more distant hosts. Assumed figures are rounded to 5 ms.

The load of a provider is a smooth function of absolute time, the same for all clients and regions. The laws:

1. Load is common to all regions: it moves the medians, and cancels in a paired difference.
2. It stays within 1 ± amplitude, and depends on seed, name and instant only, as all randomness of the simulator.
3. It is slow: at the default amplitude of 12 % it changes by less than 0.5 % per second, so two probes that are 20 ms
   apart see the same load to within 0.1 ms per second of latency.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from importlib.resources import files
from itertools import accumulate
from math import exp, floor, pi, sin
from random import Random
from typing import Any

BASELINE_REGION = "us-east-2"
_SKEW = 0.6
# The spread of exp(0.6 Z) - 1 for a standard normal Z: sqrt((e^0.36 - 1) e^0.36).
_SPREAD = 0.788
_GRID_US = 5_000_000
# (share of the amplitude, period in seconds); primes, so that the pattern does not repeat within days.
_WAVES = ((0.25, 83), (0.33, 601), (0.395, 3607))
_NOISE_SHARE = 0.025
_MIN_TTFT_US = 1_000
_SECOND_NS = 1_000_000_000
_GAP_JITTER = 0.15
_MS_US = 1_000
_ROUNDED_TO_US = 5 * _MS_US
# region: (fixed part in microseconds, share of the baseline's time to first token)
_ASSUMED = {"ap-southeast-1": (0, -0.16), "eu-central-1": (25 * _MS_US, 0.05)}


class Source(StrEnum):
    """The source of an offset: published, assumed by us, or chosen by the author of a world file."""

    PUBLISHED = "published"
    ASSUMED = "assumed"
    CHOSEN = "chosen"


@dataclass(frozen=True, slots=True)
class Offset:
    """Additional time to first token in a region relative to the baseline, in microseconds; may be negative."""

    us: int
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model and its timing from the baseline region.

    `ttft_us` is the median time to first token at average load, `jitter_us` its standard deviation between requests. An
    answer has `answer_tokens` tokens unless the request sets a lower limit. `fault` names an entry of `faults.FAULTS`,
    which affects `fault_share` of the requests. A `steady` model is independent of its provider's load. With
    `fixed_temperature` it refuses any temperature but 1; with `efforts` it refuses all other reasoning efforts and, in
    dialects that have them, thinking budgets.
    """

    id: str
    title: str
    provider: str
    ttft_us: int
    tokens_per_second: float
    usd_per_m_output: float = 0.0
    offsets: Mapping[str, Offset] = field(default_factory=dict)
    reasoning: bool = False
    fixed_temperature: bool = False
    efforts: tuple[str, ...] = ()
    dialect: str = "openai-chat"
    answer_tokens: int = 150
    jitter_us: int = 1_000
    steady: bool = False
    fault: str | None = None
    fault_share: float = 1.0
    requests_per_minute: int = 60_000
    tokens_per_minute: int = 60_000_000

    def offset_us(self, region: str) -> int:
        """Return the additional microseconds of `region` relative to the baseline; 0 without an offset."""
        offset = self.offsets.get(region)
        return offset.us if offset else 0

    def ttft_us_in(self, region: str) -> int:
        """Return the median time to first token from `region` at average load, in microseconds."""
        return self.ttft_us + self.offset_us(region)

    def differential_us(self, region: str, baseline: str) -> int:
        """Return the true difference `region` minus `baseline` in microseconds; it is independent of load."""
        return self.offset_us(region) - self.offset_us(baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An episode of a provider in one region, from `from_at` until `until_at` (wall-clock instants in microseconds):
    first tokens take `added_us` longer, or all models have a `fault`, an entry of `faults.FAULTS`.
    """

    provider: str
    region: str
    from_at: int
    until_at: int
    added_us: int = 0
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The titles of regions and the models, by name. `load_amplitude` and `pace_amplitude` are the shares by which load
    varies the time to first token and the tokens per second. Published differences do not include `episodes`.

    `round_trips_us` are the real round trips, in microseconds, between the clients of a region and this simulator. They
    are part of a model's time to first token: a first token is sent one round trip earlier, so that it arrives in time.
    """

    title: str
    source: str
    regions: Mapping[str, str]
    models: Mapping[str, Model]
    baseline: str = BASELINE_REGION
    seed: int = 1
    load_amplitude: float = 0.12
    pace_amplitude: float = 0.02
    episodes: tuple[Episode, ...] = ()
    round_trips_us: Mapping[str, int] = field(default_factory=dict)

    def episodes_of(self, provider: str, region: str, *, at: int) -> list[Episode]:
        """Return the episodes of a provider in a region at an instant in microseconds."""
        place = (provider, region)
        return [
            one for one in self.episodes if (one.provider, one.region) == place and one.from_at <= at < one.until_at
        ]

    def with_models(self, models: Iterable[Model]) -> "World":
        """Return the world with more models; a model with an existing id replaces the other one."""
        return replace(self, models={**self.models, **{model.id: model for model in models}})


def uniform(*words: object) -> float:
    """Return a number in [0, 1) that depends on `words` only."""
    return _number(":".join(map(str, words)).encode()) / 2**64


def generator(*words: object, content: bytes = b"") -> Random:
    """Return a generator whose numbers depend on `words` and `content` only."""
    seed = _number(":".join(map(str, words)).encode() + b"\0" + content)
    return Random(seed)  # noqa: S311  # reproducible on purpose; not for secrets


def skewed(rng: Random, deviation: float) -> float:
    """Return a random number with median 0, standard deviation `deviation` and a right tail, like latency: a shifted
    log-normal distribution, in the unit of `deviation`.
    """
    return deviation / _SPREAD * (exp(_SKEW * rng.gauss(0.0, 1.0)) - 1.0)


def _number(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def load_factor(name: str, at: int, *, seed: int, amplitude: float) -> float:
    """Return the load factor of `name` at the instant `at` (microseconds since the epoch), within 1 ± `amplitude`."""
    waves = 0.0
    for share, period in _WAVES:
        # Integer arithmetic removes whole periods: a float of microseconds since 1970 is too coarse for a phase.
        turned = at % (period * 1_000_000) / (period * 1_000_000)
        waves += share * sin(2 * pi * (turned + uniform(seed, name, "phase", period)))
    return 1.0 + amplitude * (waves + _NOISE_SHARE * _noise(name, at, seed))


def _noise(name: str, at: int, seed: int) -> float:
    cell, within = divmod(at, _GRID_US)
    here, there = (2 * uniform(seed, name, "noise", cell + step) - 1 for step in (0, 1))
    share = within / _GRID_US
    return here + (there - here) * share * share * (3 - 2 * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTiming:
    """The time to first token in nanoseconds, and the rate of the following tokens per second."""

    ttft_ns: int
    tokens_per_second: float

    def offsets_ns(self, rng: Random, count: int) -> list[int]:
        """Return the instants of `count` tokens, in nanoseconds after the request. The gaps vary by ±15 % but their sum
        does not, so that (count - 1) / (last - first) is exactly the rate.
        """
        gaps = [1.0 + _GAP_JITTER * (2.0 * rng.random() - 1.0) for _ in range(count - 1)]
        if not gaps:
            return [self.ttft_ns] * count
        scale = len(gaps) * _SECOND_NS / self.tokens_per_second / sum(gaps)
        return [self.ttft_ns + round(passed * scale) for passed in accumulate(gaps, initial=0.0)]


def token_timing(model: Model, world: World, *, region: str, at: int, rng: Random) -> TokenTiming:
    """TTFT = baseline TTFT * load + offset of the region + episodes + noise - round trip of the region; the rate is the
    model's, divided by its own load.

    `at` is the wall-clock instant of the request in microseconds; `rng` generates the noise.
    """
    noise_us = skewed(rng, model.jitter_us)
    added_us = sum(episode.added_us for episode in world.episodes_of(model.provider, region, at=at))
    way_us = model.offset_us(region) + added_us - world.round_trips_us.get(region, 0)
    ttft_us = model.ttft_us * _load(model, world, "ttft", at, world.load_amplitude) + way_us + noise_us
    slowness = _load(model, world, "pace", at, world.pace_amplitude)
    return TokenTiming(
        ttft_ns=round(max(_MIN_TTFT_US, ttft_us) * 1000), tokens_per_second=model.tokens_per_second / slowness
    )


def _load(model: Model, world: World, what: str, at: int, amplitude: float) -> float:
    if model.steady:
        return 1.0
    return load_factor(f"{model.provider}/{what}", at, seed=world.seed, amplitude=amplitude)


def default_world() -> World:
    """Return the world of `published.json`, with an offset for every model in every region."""
    document = json.loads(files("isochrone_sim").joinpath("published.json").read_text("utf-8"))
    differences = document["published_differences_ms"]
    models = [_model(row, differences) for row in document["models"]]
    return World(
        title=document["title"],
        source=document["source"],
        baseline=document["baseline"],
        regions=document["regions"],
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
