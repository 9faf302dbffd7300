"""A stream without end fills no memory."""

import json
import os
import subprocess
import sys

from fixtures.simulator import Simulator

MEGABYTE = 1_000_000
SCRIPT = """
import pathlib, runpy, sys
sys.argv[0] = "isochrone-agent"
try:
    runpy.run_module("isochrone_agent", run_name="__main__")
finally:
    # Not ru_maxrss: that one remembers the process this one was forked from.
    status = pathlib.Path("/proc/self/status")
    kilobytes = status.read_text().split("VmHWM:")[1].split()[0] if status.exists() else "0"
    sys.stderr.write(f"peak {int(kilobytes) * 1024}")
"""


def test_a_stream_of_a_gigabyte(fault_simulator: Simulator) -> None:
    """A flood of 1 GiB of healthy-looking tokens is given up at its limit, and the agent stays under 200 MB."""
    options = ["probe", "--base-url", fault_simulator.base_url, "--model", "fault-flood", "--output", "json"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *options],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
        check=False,
    )
    [sample] = json.loads(done.stdout)["samples"]
    assert (sample["outcome"], "larger than" in sample["error"]) == ("garbled", True)
    assert int(done.stderr.rpartition("peak ")[2]) < 200 * MEGABYTE
