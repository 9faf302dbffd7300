"""Stalls of simulated providers: spans in which every request takes longer, of one or shared by several. Pure."""

from collections.abc import Iterator, Mapping
from random import Random

STALL_MS = 8000.0
SPAN_S = 0.1


def episodes(
    own: Mapping[str, float], region: str, *, shared: float, seconds: float, seed: int
) -> Iterator[tuple[str, ...]]:
    """Yield the words after `isochrone-sim serve --episode` for stalls of each provider in a share of the time, and for
    those that all of them have at once.
    """
    random = Random(f"{seed} {sorted(own)}")
    for group, share in [*(((name,), share) for name, share in own.items()), (tuple(own), shared)]:
        for after_s in _starts(random, share, seconds):
            for provider in group:
                yield provider, region, f"{STALL_MS:g}", f"{after_s:.3f}", f"{SPAN_S:g}"


def _starts(random: Random, share: float, seconds: float) -> Iterator[float]:
    """Yield the start of one span in each period of which a span is that share, somewhere in the period."""
    if share:
        period_s = SPAN_S / share
        for nth in range(int(seconds / period_s)):
            yield (nth + random.random()) * period_s
