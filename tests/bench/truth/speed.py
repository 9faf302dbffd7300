"""The speed of streams that are released at the ticks of a timer, by the agent's own measurement."""

from functools import cache
from itertools import product

import numpy as np

from testdata.flush_timers import flushed, speed_of

REPLICATIONS = 100
TIMERS_MS = (50, 100, 200)
TOKENS = (64, 200)
RATES = (20, 50, 100, 200)


@cache
def flush_speed_bias_pct(seed: int) -> dict[str, float]:
    """Return the mean error in per cent by timer, of the worst kind of stream of which most have a speed."""
    return {
        f"timer of {timer_ms} ms": max(
            _bias_pct(seed, tokens, rate, timer_ms, eager=eager, joined=joined)
            for tokens, rate, eager, joined in product(TOKENS, RATES, (False, True), (False, True))
        )
        for timer_ms in TIMERS_MS
    }


def _bias_pct(seed: int, tokens: int, rate: float, timer_ms: float, *, eager: bool, joined: bool) -> float:
    random = np.random.default_rng((seed, tokens, round(rate), round(timer_ms), eager, joined))
    errors = []
    for _ in range(REPLICATIONS):
        series, truth = flushed(random, tokens=tokens, rate=rate, timer_ms=timer_ms, eager=eager, joined=joined)
        if (found := speed_of(series, tokens)) is not None:
            errors.append(100 * (found / truth - 1))
    return float(abs(np.mean(errors))) if 2 * len(errors) > REPLICATIONS else 0.0
