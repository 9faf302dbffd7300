"""docs/prometheus.md keeps its word: its commands export probes to a receiver."""

from pathlib import Path

from fixtures.otlp import OtlpReceiver, attributes
from testdata.documented_commands import blocks_of, make_checkout, running, section, unused_ports, with_ports
from testdata.waiting import eventually


def test_the_commands_export_probes(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """The commands of the page lead to traces and metrics of the plan's target."""
    text = section("prometheus.md", "OpenTelemetry").replace("http://127.0.0.1:4318", otlp_receiver.url)
    make_checkout(tmp_path)
    with running(blocks_of(with_ports(text, unused_ports(["8081"]))), tmp_path) as log:
        name = "gen_ai.client.operation.time_to_first_chunk"
        eventually(60, lambda: bool(otlp_receiver.points(name)), "a first chunk")
    assert {attributes(one)["isochrone.target"] for one in otlp_receiver.roots} == {"zhipu/glm-5"}, log.read_text()
