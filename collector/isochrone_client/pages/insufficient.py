"""Errors that several pages raise for answers with too little data."""

from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.formats import between
from isochrone_wire.answers import Window


def no_samples(window: Window) -> NoSamplesError:
    """The error for a window without samples."""
    return NoSamplesError(f"no samples between {between(window)}", window=window)


def no_price() -> InsufficientError:
    """The error for a plan without prices."""
    return InsufficientError("no target has a price", hint="set `price` of the targets in the plan")


def too_few_for_a_median(most: int) -> InsufficientError:
    """The error if no target has a median; `most` is the largest number of samples of a target."""
    return InsufficientError(
        f"no target has enough independent samples for a median: {most} of 16 needed, or of 6 with a week of history",
        hint="wait for more rounds, or see `isochrone samples` for why probes fail",
    )
