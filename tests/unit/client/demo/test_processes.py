"""The programs of the demo."""

import json
from pathlib import Path

import pytest

from isochrone_client.demo import processes
from isochrone_client.demo.processes import Processes, run
from isochrone_client.errors import DemoError
from isochrone_client.screen import StopRequests

SHOWS_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def test_programs_get_no_options_of_other_collectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database or a webhook that a variable names for the user's own collector is not used by the demo's."""
    (tmp_path / "shows_environment.py").write_text(SHOWS_ENVIRONMENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("ISOCHRONE_DATABASE_URL", "postgresql://production/isochrone")
    monkeypatch.setenv("ISOCHRONE_ALERT_URL", "https://hooks.example/alerts")
    with (
        (tmp_path / "lock").open("a") as lock,
        StopRequests() as stop,
        Processes(tmp_path, lock=lock.fileno(), stop=stop) as programs,
    ):
        started = programs.start_ready("shown", "shows_environment")
    for environment in (started, json.loads(run("shows_environment"))):
        assert environment["PATH"]
        assert not [name for name in environment if name.startswith("ISOCHRONE_")]


def test_a_slow_program_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is too busy the demo ends with a sentence."""
    (tmp_path / "sleeps.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(processes, "READY_SECONDS", 0.5)
    with pytest.raises(DemoError, match="did not end within") as slow:
        run("sleeps")
    assert "busy" in slow.value.hint
