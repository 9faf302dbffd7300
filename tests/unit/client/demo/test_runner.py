"""The programs of the demo, its receiver, and the command lines that it suggests for another terminal."""

import json
import sys
from pathlib import Path

import httpx
import pytest

from fixtures.fake_collector import FakeCollector
from isochrone_client.address import resolve_collector
from isochrone_client.configuration import Configuration, Context, write
from isochrone_client.demo import processes
from isochrone_client.demo.processes import Processes, run
from isochrone_client.demo.receiver import AlertReceiver
from isochrone_client.demo.runner import _advice, command_line, own_collector, require_readable
from isochrone_client.demo.scenario import SUGGESTIONS
from isochrone_client.errors import DemoError
from isochrone_client.screen import StopRequests
from isochrone_common import identity_file
from isochrone_common.address import Address, parse_address
from isochrone_common.credentials import Credential
from isochrone_common.identity_file import Identity
from isochrone_common.trust import Trust
from isochrone_wire.operations import Role

SHOWS_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.mark.parametrize(
    ("on_path", "bin_folder", "line"),
    [
        (True, "here/.venv/bin", "isochrone routes"),
        (False, "here/.venv/bin", ".venv/bin/isochrone routes"),
        (False, "there/bin", "{root}/there/bin/isochrone routes"),
        (False, "here/a b", "'a b/isochrone' routes"),
    ],
)
def test_a_suggested_line_works_in_another_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on_path: bool, bin_folder: str, line: str
) -> None:
    """The plain name if the shell finds it, otherwise the path of the program, relative if it is below the folder."""
    folder = tmp_path / bin_folder
    folder.mkdir(parents=True)
    (folder / "isochrone").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder if on_path else tmp_path / "empty"))
    shown = command_line("isochrone routes", python=folder / Path(sys.executable).name, folder=tmp_path / "here")
    assert shown == line.format(root=tmp_path)


def test_suggested_lines_ask_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name the demo's collector wherever a command without an option asks another one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ISOCHRONE_COLLECTOR", raising=False)
    assert not any("--collector" in line for line in _advice("127.0.0.1:4680", SUGGESTIONS))
    assert all(line.endswith(" --collector 127.0.0.1:4681") for line in _advice("127.0.0.1:4681", SUGGESTIONS))
    monkeypatch.setenv("ISOCHRONE_COLLECTOR", "127.0.0.1:4700")
    assert all(line.endswith(" --collector 127.0.0.1:4680") for line in _advice("127.0.0.1:4680", SUGGESTIONS))
    monkeypatch.delenv("ISOCHRONE_COLLECTOR")
    write(Configuration().including(Context(name="prod", collector="127.0.0.1:4700"), current=True))
    assert all(line.endswith(" --collector 127.0.0.1:4680") for line in _advice("127.0.0.1:4680", SUGGESTIONS))


@pytest.fixture
def identity_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observatory: FakeCollector) -> FakeCollector:
    """A collector in plain text, for whose address the user has an identity that requires TLS."""
    port = parse_address(observatory.address).port
    identity = Identity(
        address=Address("127.0.0.1", 4600),
        name="ida",
        role=Role.READER,
        trust=Trust(),
        credential=str(Credential(id=7, secret=bytes(32))),
        http_port=port,
    )
    (tmp_path / "isochrone").mkdir()
    identity_file.write(tmp_path / "isochrone" / identity_file.FILE_NAME, identity)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ISOCHRONE_COLLECTOR", "127.0.0.1:1")
    assert resolve_collector(observatory.address).identity is not None
    return observatory


def test_the_demo_reads_its_own_collector_only(identity_for: FakeCollector) -> None:
    """An identity for the same address and a variable are ignored; a collector that cannot be read is an error."""
    require_readable(own_collector(f"http://{identity_for.address}"))
    with pytest.raises(DemoError, match=r"cannot read its own collector at 127\.0\.0\.1:1: "):
        require_readable(own_collector("http://127.0.0.1:1"))


def test_suggested_lines_avoid_an_identity(identity_for: FakeCollector) -> None:
    """Where an identity has the address of the demo, the lines name its socket, to which no identity applies."""
    lines = _advice(identity_for.address, SUGGESTIONS, Path("/tmp/d/collector.sock"))
    assert all(line.endswith(" --collector unix:/tmp/d/collector.sock") for line in lines)
    assert resolve_collector("unix:/tmp/d/collector.sock").identity is None


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
        assert not Path(environment["XDG_CONFIG_HOME"]).exists()
        assert not Path(environment["XDG_DATA_HOME"]).exists()
        assert not [name for name in environment if name.startswith("ISOCHRONE_")]


def test_a_slow_program_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is too busy the demo ends with a sentence."""
    (tmp_path / "sleeps.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(processes, "READY_SECONDS", 0.5)
    with pytest.raises(DemoError, match="did not end within") as slow:
        run("sleeps")
    assert "busy" in slow.value.hint


def body(alert: str, kind: str) -> bytes:
    data = {"id": alert, "subject": "p/m", "sentence": "fails from us since 2026-11-21 00:10 UTC: 3 timed_out"}
    return json.dumps({"type": f"isochrone.{kind}", "timestamp": "2026-11-21T00:12:00Z", "data": data}).encode()


def test_the_receiver_counts_what_arrives() -> None:
    """Each alert about an incident is returned once, without what incidents have, and repetitions are counted."""
    with AlertReceiver() as receiver, httpx.Client(base_url=receiver.url, trust_env=False) as client:
        assert client.post("", content=body("alert_1", "target_failing")).is_success
        client.post("", content=body("alert_2", "route_switched"))
        assert receiver.new() == ["alert target_failing: p/m fails from us"]
        assert receiver.count() == "2 alerts arrived at the receiver, 1 of them about incidents: each once"
        client.post("", content=body("alert_1", "target_failing"))
        assert len(receiver.new()) == 1
        assert receiver.new() == []
        assert receiver.count().endswith("1 of them about incidents: 1 of them more than once")
