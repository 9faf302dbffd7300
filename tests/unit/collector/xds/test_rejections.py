"""Rejections of Envoys: each is counted, and logged once per version."""

from structlog.testing import capture_logs

from isochrone_collector.xds.resources import CLUSTERS, ROUTES
from isochrone_collector.xds.snapshots import Rejections
from isochrone_collector.xds.stream_state import Rejection
from isochrone_wire.workloads import MAX_NAME_CHARS


def test_a_rejection_is_logged_once() -> None:
    """A hundred Envoys that reject a version give one line, with the reason, and a hundred counts."""
    rejections = Rejections()
    with capture_logs() as logs:
        for _ in range(100):
            rejections.note("us", Rejection(type_url=ROUTES, version="v1", reason="no such cluster"))
        rejections.note("us", Rejection(type_url=ROUTES, version="v2", reason="again"))
        rejections.note("eu", Rejection(type_url=CLUSTERS, version="v1", reason="x" * 10_000))
        rejections.note("us", None)
    assert [(line["client_region"], line["resources"], line["version"]) for line in logs] == [
        ("us", "routes", "v1"),
        ("us", "routes", "v2"),
        ("eu", "clusters", "v1"),
    ]
    assert logs[0]["reason"] == "no such cluster"
    assert len(logs[2]["reason"]) < 5_000
    assert rejections.counts == {("us", "routes"): 101, ("eu", "clusters"): 1}


def test_versions_that_an_envoy_states_do_not_flood_the_log() -> None:
    """Over HTTP the version is that of the request: it is cut, and other ones are logged at a bounded rate."""
    rejections = Rejections()
    with capture_logs() as logs:
        for number in range(1_000):
            version = f"{number}{'x' * 10_000}"
            rejections.note("us", Rejection(type_url=ROUTES, version=version, reason="no"))
    assert len(logs) < 100
    assert max(len(line["version"]) for line in logs) <= MAX_NAME_CHARS
    assert rejections.counts == {("us", "routes"): 1_000}
