"""Lists the fixtures of `fixtures/`, and sets how the tests are distributed over workers and in time."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools.bytecode import compile_modules

pytest_plugins = [
    "fixtures.agent",
    "fixtures.node",
    "fixtures.browser",  # imports the one above
    "fixtures.collector",
    "fixtures.envoy",
    "fixtures.inprocess_collector",
    "fixtures.kubernetes",
    "fixtures.later_version",
    "fixtures.network",
    "fixtures.fake_collector",
    "fixtures.portkey",
    "fixtures.postgres",
    "fixtures.otlp",
    "fixtures.prometheus",
    "fixtures.simulator",
    "fixtures.table_server",
    "fixtures.routing_client",  # imports the two above
    "fixtures.gateway",  # imports the one above
    "fixtures.transformers",
    "fixtures.web",
    "fixtures.webhook",
]

# The tests copy databases and flush spools, which took a third of their processor time on a disk. None of them loses
# power, so their temporary files are in memory where there is room.
IN_MEMORY = Path("/dev/shm")  # as Linux names it
ROOM_BYTES = 4 << 30
if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES:
    os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)

# The readline library sets these for child processes, whose tables would have another width than on the command line.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
    os.unsetenv(name)

# A shell starts background jobs with SIGINT ignored, and nohup starts a program with SIGHUP ignored, which child
# processes of the tests would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# pip would compile all modules of an installation, of which a test imports a few.
os.environ["PIP_COMPILE"] = "0"

# On a busy machine any example may take long.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Most tests wait for other processes, some of them for a minute.
WORKERS_PER_CORE = 2
MORE_WORKERS = 2

TESTS = Path(__file__).parent
SOURCES = ("agent", "clients/python", "collector", "common", "deploy/simulator", "migrations", "proto")
# The modules that take more than a minute, longest first; measured by `make test ARGS=--durations=100`. There is one
# demo at a time, so the other two come last: a worker would wait for the first one's end.
LONGEST = (
    "acceptance/test_demo.py",
    "acceptance/test_attack.py",
    "acceptance/test_two_hosts.py",
    "acceptance/test_readme.py",
    "unit/collector/routing/test_simulated_worlds.py",
    "chaos/test_chaos_short.py",
    "acceptance/test_delivery.py",
    "integration/collector/store/test_lost_database.py",
    "integration/client/test_absence.py",
    "acceptance/test_demo_faults.py",
    "integration/client/demo/test_runner.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Compile all modules before parallel workers start."""
    if config.getoption("numprocesses", None) and not sys.dont_write_bytecode:
        compile_modules(config, [TESTS, *(TESTS.parent / folder for folder in SOURCES)])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return WORKERS_PER_CORE * (os.cpu_count() or 1) + MORE_WORKERS


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without collecting garbage: all that is made here stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def without_own_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests do not see the contexts, data and options of the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("home"))
        for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            patch.setenv(variable, folder)
        for name in list(os.environ):
            if name.startswith("ISOCHRONE_") and not name.startswith("ISOCHRONE_TEST_"):
                patch.delenv(name)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On parallel workers, start the longest modules first, then those with slow tests, and the unit tests last."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        places = {TESTS / name: place for place, name in enumerate(LONGEST)}
        last = len(places)
        items.sort(
            key=lambda item: (places.get(item.path, last), item.path not in slow, TESTS / "unit" in item.path.parents)
        )
