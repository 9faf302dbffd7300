"""Why regions have no samples in a window, from the state of their vantages. Pure."""

from collections.abc import Iterable, Sequence

from isochrone_wire.answers import Absence, Window
from isochrone_wire.fleet import VantageStatus

ELSEWHERE = "has delivered others"
"""The end of the sentence of a region whose vantage has delivered samples, but none of the selection."""


def absences(regions: Iterable[str], vantages: Sequence[VantageStatus], window: Window) -> tuple[Absence, ...]:
    """Return the reason for each of these regions, all of which have no samples in the window."""
    return tuple(
        Absence(region=region, sentence=_sentence(region, [one for one in vantages if one.region == region], window))
        for region in regions
    )


def absences_besides(
    region: str, vantages: Sequence[VantageStatus], window: Window, *, baseline: str
) -> tuple[Absence, ...]:
    """Return the reasons if no region besides this one has samples in the window: of the baseline, and of those with a
    vantage.
    """
    others = dict.fromkeys((baseline, *sorted(one.region for one in vantages)))
    return absences((other for other in others if other not in ("", region)), vantages, window) or (
        Absence(region="", sentence="no samples from a second region: start an agent there"),
    )


def _sentence(region: str, vantages: Sequence[VantageStatus], window: Window) -> str:
    if not vantages:
        return f"no samples from {region}: start an agent there"
    newest = max(vantages, key=lambda one: one.newest_sample_at or 0)
    if (newest.newest_sample_at or 0) >= window.from_at:
        return f"no samples from {region} in this selection, but {newest.name} there {ELSEWHERE}"
    return f"no samples from {region} (vantage {newest.name}: {newest.reason})"
