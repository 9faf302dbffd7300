"""The timing of tokens: time to first token and gaps, from a model, a region and an instant."""

from dataclasses import dataclass
from itertools import accumulate
from random import Random

from isochrone_sim.world.load import load_factor
from isochrone_sim.world.randomness import skewed
from isochrone_sim.world.world import Model, World

_MIN_TTFT_US = 1_000
_SECOND_NS = 1_000_000_000
_GAP_JITTER = 0.15


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
    way_us = model.offset_us(region) + world.added_us(model.provider, region, at=at)
    way_us -= world.round_trips_us.get(region, 0)
    ttft_us = model.ttft_us * _load(model, world, "ttft", at, world.load_amplitude) + way_us + noise_us
    slowness = _load(model, world, "pace", at, world.pace_amplitude)
    return TokenTiming(
        ttft_ns=round(max(_MIN_TTFT_US, ttft_us) * 1000),
        tokens_per_second=model.tokens_per_second / slowness,
    )


def _load(model: Model, world: World, what: str, at: int, amplitude: float) -> float:
    if model.steady:
        return 1.0
    return load_factor(f"{model.provider}/{what}", at, seed=world.seed, amplitude=amplitude)
