"""`isochrone-collector` with a wall clock that is ahead by the seconds in the file that TEST_CLOCK_FILE names.

The file is read at every look at the clock, so that a test can set the clock of a running process.
"""

import os
import time
from pathlib import Path
from types import SimpleNamespace

from isochrone_collector import clock
from isochrone_collector.cli.main import main

_FILE = Path(os.environ["TEST_CLOCK_FILE"])


def _time_ns() -> int:
    return time.time_ns() + round(float(_FILE.read_text()) * 1e9)


if __name__ == "__main__":
    fake = SimpleNamespace(**{**vars(time), "time_ns": _time_ns})
    vars(clock)["time"] = fake  # the only module that reads the wall clock
    main()
