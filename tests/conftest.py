"""Test fixtures, one fix_*.py per resource; and how the tests are distributed over workers and in time."""

import os
import signal
from pathlib import Path

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
    "fix_prometheus",
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

# A shell starts background jobs with SIGINT ignored, and nohup starts a program with SIGHUP ignored, which child
# processes of the tests would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# On a busy machine any example may take long.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Most tests wait for other processes.
WORKERS_PER_CORE = 2

TESTS = Path(__file__).parent
# The modules that take more than a minute, longest first; measured by `make test ARGS=--durations=100`.
LONGEST = (
    "acceptance/test_two_hosts.py",
    "acceptance/test_readme.py",
    "acceptance/test_demo.py",
    "unit/collector/routing/test_simulated_worlds.py",
    "acceptance/test_demo_screen.py",
    "acceptance/test_outages.py",
    "integration/client/demo/test_runner.py",
    "acceptance/test_restored_database.py",
    "chaos/test_chaos_short.py",
    "integration/collector/store/test_lost_database.py",
    "acceptance/test_attack.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers of `make test`."""
    return WORKERS_PER_CORE * (os.cpu_count() or 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On parallel workers, start the longest modules first, then the others with slow tests, and the unit tests last,
    so that no worker is left with a long module at the end.
    """
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        places = {TESTS / name: place for place, name in enumerate(LONGEST)}
        last = len(places)
        items.sort(
            key=lambda item: (places.get(item.path, last), item.path not in slow, TESTS / "unit" in item.path.parents)
        )
