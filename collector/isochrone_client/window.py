"""The time range of `--window`: see `isochrone_wire.queries.windows`."""

from isochrone_client.errors import WindowError
from isochrone_wire.answers import Window
from isochrone_wire.queries import windows


def parse_window(text: str, *, now_at: int) -> Window:
    """Parse the window `text` as of the instant `now_at` (microseconds since the epoch). Raises `WindowError`."""
    try:
        return windows.parse_window(text, now_at=now_at)
    except windows.WindowError as error:
        raise WindowError(str(error), hint=error.hint) from error
