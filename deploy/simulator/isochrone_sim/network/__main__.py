"""Run a wide-area network: python -m isochrone_sim.network REGION=ROUND_TRIP_MS …

Once the network is ready, this prints one line of JSON: the `address` of the hub, and the words to put before a command
that is to run in the `hub` or in one of the `regions`. If the network cannot be created here, the reason is the last
line of the error output, and the exit code is 1.

The network exists until the standard input is closed. Until then each line of it is a command, `cut REGION` or
`mend REGION`, and is answered with the same line.
"""

import json
import os
import sys
from contextlib import suppress

from isochrone_sim.network.delay_line import DelayLine
from isochrone_sim.network.wide_area import HUB_ADDRESS, create_wide_area


def main() -> None:
    """Create the network and carry its packets."""
    if sys.platform != "linux":
        sys.exit("network namespaces need Linux")
    regions = [text.rpartition("=") for text in sys.argv[1:]]
    try:
        area = create_wide_area({region: round(float(text) * 1000) for region, _, text in regions})
    except OSError as error:
        # A call on an open file does not know its name.
        what = f"{error.filename}: " if error.filename else ""
        sys.exit(f"this machine does not allow network namespaces: {what}{(error.strerror or 'error').lower()}")
    # A delay line that waits for a core is a longer line. Only privileged users may go before all other processes.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    ready = {
        "ready": True,
        "address": HUB_ADDRESS,
        "hub": _entering(area.hub),
        "regions": {region: _entering(paths) for region, paths in area.regions.items()},
    }
    print(json.dumps(ready), flush=True)  # noqa: T201  # the caller waits for it
    DelayLine(area.links).run()


def _entering(paths: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "isochrone_sim.network.kernel", *paths, "--"]


if __name__ == "__main__":
    main()
