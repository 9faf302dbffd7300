"""Logs: what they load, and what they leave alone."""

import json
import subprocess
import sys

LOADED = "import sys, isochrone_agent.cli.run; print('rich' in sys.modules, 'structlog' in sys.modules)"
AFTERWARDS = "import isochrone_common.cli.service, rich.text; print(rich.text.Text('found'))"

FAILURE = """
import sys; sys.stderr = sys.stdout
from isochrone_common.cli.service import set_up_logs; set_up_logs("json")
import structlog
try: 1 / 0
except ZeroDivisionError: structlog.get_logger().exception("probe.failed")
"""


def printed(program: str) -> str:
    """What a Python of its own prints: this one has loaded too much to tell."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_running_agent_does_without_rich() -> None:
    """Everything `run` needs is loaded, and rich, which would be a tenth of its memory, is not."""
    assert printed(LOADED) == "False True"


def test_a_log_for_machines_tells_why() -> None:
    """The JSON line of a failure holds its traceback, not merely that there was one."""
    line = json.loads(printed(FAILURE))
    assert (line["event"], "exc_info" in line) == ("probe.failed", False)
    assert "ZeroDivisionError: division by zero" in line["exception"]


def test_rich_is_there_for_who_wants_it() -> None:
    """What was kept from structlog can be imported afterwards as ever."""
    assert printed(AFTERWARDS) == "found"
