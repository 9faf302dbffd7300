"""Test fixtures, one fix_*.py per resource; and how the tests are distributed over workers and in time."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "fix_agent",
    "fix_browser",
    "fix_collector",
    "fix_inprocess_collector",
    "fix_network",
    "fix_observatory",
    "fix_postgres",
    "fix_routes",
    "fix_simulator",
    "fix_transformers",
    "fix_web",
    "fix_webhook",
]

# The readline library sets these for child processes, whose tables would have another width than on the command line.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
    os.unsetenv(name)

# A shell starts background jobs with SIGINT ignored, which child processes of the tests would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine any example may take long.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Most tests wait for other processes.
WORKERS_PER_CORE = 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers of `make test`."""
    return WORKERS_PER_CORE * (os.cpu_count() or 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On parallel workers, start the modules with slow tests first, so that no worker is left with one at the end."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)
