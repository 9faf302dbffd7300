"""The addresses on which the collector serves gRPC."""

from pathlib import Path
from stat import S_IMODE

from fixtures.collector import Caller, StartCollector, run_command
from isochrone_client.client import ReadClient
from isochrone_wire.model import Vantage

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"


def test_agents_and_commands_use_the_unix_socket(start_collector: StartCollector, tmp_path: Path) -> None:
    """A plan that was applied over the port is fetched over the Unix socket. A socket that a killed collector left is
    replaced, and other users cannot connect to it.
    """
    socket = tmp_path / "collector.sock"
    more = ("--unix-socket", str(socket))
    start_collector(more=more).kill()
    assert socket.is_socket()
    start_collector(more=more).call.apply(PLAN)
    assert S_IMODE(socket.stat().st_mode) == 0o600
    caller = Caller(f"unix:{socket}")
    plan = caller.fetch_plan(vantage=Vantage(name="us-1", region="us-east-2"))
    caller.close()
    assert plan is not None
    assert [target.model for target in plan.targets] == ["a"]
    with ReadClient(f"unix:{socket}") as client:
        assert [target.model for target in client.list_targets().targets] == ["a"]
    assert run_command("plan", "history", "--collector", f"unix:{socket}").returncode == 0
