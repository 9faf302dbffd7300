"""Every sample of a selection, in portions, oldest round first, also where the connection breaks on the way."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from isochrone_client.client import ObservatoryClient
from isochrone_client.deduplication import Deduplication
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_wire.answers import Selection, StoredSample

_PAUSE_SECONDS = 1.0
_ATTEMPTS = 30


def harvested(
    client: ObservatoryClient, selection: Selection, *, tell: Callable[[str], None]
) -> Iterator[tuple[StoredSample, ...]]:
    """The samples of the selection, each once. After a broken connection it goes on with the newest round that came.

    `tell` gets a sentence about each break. Raises `ClientError` when the collector is not there from the beginning or
    does not come back.
    """
    recall, newest_at, failures = Deduplication(lambda row: row.sample.round_at), 0, 0
    while True:
        try:
            for portion in client.export_samples(_from(selection, newest_at)):
                fresh = recall.untold(portion)
                if fresh:
                    newest_at, failures = fresh[-1].sample.round_at, 0
                    recall.forget_before(newest_at)
                    yield fresh
        except (UnreachableError, SlowError) as error:
            failures += 1
            if not newest_at or failures > _ATTEMPTS:
                raise
            if failures == 1:
                tell(f"{error}; going on when it is back")
            time.sleep(_PAUSE_SECONDS)
            recall.expect_again()
        else:
            return


def _from(selection: Selection, newest_at: int) -> Selection:
    window = selection.window
    return replace(selection, window=replace(window, from_at=max(window.from_at, newest_at)))
