"""All samples of a selection, page by page, oldest round first; a broken connection is resumed."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from isochrone_client.client import ObservatoryClient
from isochrone_client.deduplication import Deduplication
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_wire.answers import Selection, StoredSample

_RETRY_SECONDS = 1.0
_ATTEMPTS = 30


def fetch_pages(
    client: ObservatoryClient, selection: Selection, *, report: Callable[[str], None]
) -> Iterator[tuple[StoredSample, ...]]:
    """Yield each sample of the selection once. After a broken connection, resume at the newest round received.

    `report` receives a sentence about each break. Raises `ClientError` if the collector cannot be reached at the start
    or does not come back.
    """
    seen, newest_at, failures = Deduplication(lambda row: row.sample.round_at), 0, 0
    while True:
        try:
            for samples in client.export_samples(_since(selection, newest_at)):
                new = seen.drop_repeats(samples)
                if new:
                    newest_at, failures = new[-1].sample.round_at, 0
                    seen.forget_before(newest_at)
                    yield new
        except (UnreachableError, SlowError) as error:
            failures += 1
            if not newest_at or failures > _ATTEMPTS:
                raise
            if failures == 1:
                report(f"{error}; continuing when it is back")
            time.sleep(_RETRY_SECONDS)
            seen.expect_repeats()
        else:
            return


def _since(selection: Selection, newest_at: int) -> Selection:
    window = selection.window
    return replace(selection, window=replace(window, from_at=max(window.from_at, newest_at)))
