"""`isochrone routes kubernetes` as processes, with an API server on a real socket; and its section of the page."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.fake_collector import FakeCollector
from fixtures.kubernetes import API_OF, NAMESPACE, ApiServer
from fixtures.simulator import Simulator
from isochrone_client.errors import ClusterError
from isochrone_client.kubernetes.cluster import Cluster, ConflictError
from isochrone_client.kubernetes.reconciler import Election, Reconciler
from isochrone_client.kubernetes.route_objects import HTTP_ROUTE, change_of
from testdata.documented_commands import ROOT, blocks_of, make_checkout, section
from testdata.preforked import Program
from testdata.routes import CHAT, fresh
from testdata.waiting import eventually

PATIENCE = 20.0
FIRST, SECOND, THIRD = (entry.target for entry in CHAT.entries)
METADATA: dict[str, Any] = {
    "labels": {"isochrone/route": "chat"},
    "annotations": {"isochrone/targets": f"one={FIRST}, two={SECOND}"},
}
HTTP_SPEC: dict[str, Any] = {
    "parentRefs": [{"name": "gateway"}],
    "rules": [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
            "filters": [{"type": "URLRewrite"}],
            "backendRefs": [{"name": "one", "port": 443}, {"name": "two", "port": 443}],
        }
    ],
}
AI_SPEC: dict[str, Any] = {"rules": [{"backendRefs": [{"name": "one"}, {"name": "two"}]}]}


@contextmanager
def started(api: ApiServer, routing: FakeCollector, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The command as a separate process, killed at the end of the block; its stderr is in `log`."""
    options = ["--region", "us-east-2", "--server", api.url, "--namespace", NAMESPACE, "--route", "chat"]
    environment = {**os.environ, "ISOCHRONE_COLLECTOR": routing.address}
    with (
        log.open("wb") as errors,
        Program[bytes]("isochrone_client", "routes", "kubernetes", *options, env=environment, stderr=errors) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def weights(api: ApiServer, plural: str = "httproutes", name: str = "llm") -> list[int]:
    return [one["weight"] for one in api.get(plural, name)["spec"]["rules"][0]["backendRefs"]]


def holder(api: ApiServer) -> str:
    lease = api.objects.get(("leases", "isochrone-us-east-2"))
    return str(lease["spec"]["holderIdentity"]) if lease else ""


def test_objects_follow_the_tables(api_server: ApiServer, routing: FakeCollector, tmp_path: Path) -> None:
    """Objects with the label follow weights and priorities, also after a user's change; other fields stay."""
    routing.restart(fresh(48))
    api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
    api_server.put("aigatewayroutes", "llm", spec=AI_SPEC, **METADATA)
    api_server.put("httproutes", "other", spec=HTTP_SPEC)
    with started(api_server, routing, tmp_path / "log"):
        eventually(PATIENCE, lambda: weights(api_server) == [1000, 0], "the weights of generation 48")
        eventually(PATIENCE, lambda: weights(api_server, "aigatewayroutes") == [1000, 1000], "weights")
        backends = api_server.get("aigatewayroutes", "llm")["spec"]["rules"][0]["backendRefs"]
        assert [one["priority"] for one in backends] == [0, 1]
        routing.publish(replace(fresh(49), move_within_us=0))
        eventually(PATIENCE, lambda: weights(api_server) == [0, 1000], "the weights of generation 49")
        api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
        eventually(PATIENCE, lambda: weights(api_server) == [0, 1000], "the user's change is replaced")
        live = api_server.get("httproutes", "llm")
    assert live["spec"]["rules"][0]["filters"] == HTTP_SPEC["rules"][0]["filters"]
    assert live["metadata"]["annotations"]["isochrone/generation"] == "49"
    assert api_server.owner("httproutes", "llm", "spec.rules") == ["isochrone"]
    assert api_server.owner("httproutes", "llm", "spec.parentRefs") == ["kubectl"]
    assert {name for _, plural, name, _ in api_server.writes if plural == "httproutes"} == {"llm"}
    assert all(set(body["spec"]) == {"rules"} for body in api_server.patched("httproutes"))


def test_an_expired_table_becomes_static(api_server: ApiServer, routing: FakeCollector, tmp_path: Path) -> None:
    """After `stale_until` all traffic goes to the first of the plan's order that the rule has."""
    table = replace(fresh(49, seconds=6), static_order=(FIRST, SECOND))
    routing.restart(table)
    api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
    with started(api_server, routing, tmp_path / "log"):
        eventually(PATIENCE, lambda: weights(api_server) == [0, 1000], "the weights of the table")
        eventually(PATIENCE, lambda: weights(api_server) == [1000, 0], "the static order")
    assert "the cluster has the static order" in (tmp_path / "log").read_text()


def test_one_of_two_replicas_leads(api_server: ApiServer, routing: FakeCollector, tmp_path: Path) -> None:
    """Only the holder of the lease writes; when it ends, the other one leads at once and follows."""
    routing.restart(fresh(48))
    api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
    with started(api_server, routing, tmp_path / "a") as first:
        eventually(PATIENCE, lambda: weights(api_server) == [1000, 0], "the first one follows")
        leader = holder(api_server)
        with started(api_server, routing, tmp_path / "b"):
            eventually(PATIENCE, lambda: "received" in (tmp_path / "b").read_text(), "the second one has tables")
            assert holder(api_server) == leader
            first.send_signal(signal.SIGTERM)
            assert first.wait(60) == 0
            assert holder(api_server) != leader
            eventually(PATIENCE, lambda: holder(api_server) not in ("", leader), "the second one leads")
            routing.publish(replace(fresh(49), move_within_us=0))
            eventually(PATIENCE, lambda: weights(api_server) == [0, 1000], "the second one follows")
    assert "leading" in (tmp_path / "b").read_text()


def test_an_absent_api_server_is_waited_for(api_server: ApiServer, routing: FakeCollector, tmp_path: Path) -> None:
    """The outage is reported once; afterwards the objects follow, also if one kind is not installed."""
    api_server.installed.discard("aigatewayroutes")
    api_server.is_away = True
    routing.restart(fresh(48))
    api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
    with started(api_server, routing, tmp_path / "log"):
        eventually(PATIENCE, lambda: "the API server refused: 503" in (tmp_path / "log").read_text(), "a report")
        api_server.is_away = False
        eventually(PATIENCE, lambda: weights(api_server) == [1000, 0], "the weights")
    assert (tmp_path / "log").read_text().count("503") == 1


def test_problems_are_reported_once(api_server: ApiServer, routing: FakeCollector, tmp_path: Path) -> None:
    """An object that cannot follow is named with the reason, and stays."""
    routing.restart(fresh(48))
    api_server.put("httproutes", "bare", spec=HTTP_SPEC, labels=METADATA["labels"])
    api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
    with started(api_server, routing, tmp_path / "log"):
        eventually(PATIENCE, lambda: weights(api_server) == [1000, 0], "the other one follows")
        routing.publish(replace(fresh(49), move_within_us=0))
        eventually(PATIENCE, lambda: weights(api_server) == [0, 1000], "the other one follows again")
    assert weights(api_server, name="bare") == [1, 1]
    assert (tmp_path / "log").read_text().count("HTTPRoute bare: the annotation isochrone/targets is missing") == 1


def test_a_watch_wakes_the_loop(api_server: ApiServer) -> None:
    """A change of an object is answered although the clock stands still, so that no reading is due by time."""
    api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
    with closing(Cluster(api_server.url, NAMESPACE)) as cluster:
        reconciler = Reconciler(
            cluster=cluster, lease="here", election=Election("me"), report=lambda _: None, clock=lambda: 1000.0
        )
        reconciler.receive([fresh(48)])
        reconciler.start()
        eventually(PATIENCE, lambda: weights(api_server) == [1000, 0], "the weights")
        api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
        eventually(PATIENCE, lambda: weights(api_server) == [1000, 0], "the weights again")
        reconciler.stop()
        api_server.is_away = True


def test_a_change_in_between_is_not_overwritten(api_server: ApiServer) -> None:
    """A patch made from an earlier version is refused, so that it cannot undo another change of the rules."""
    live = api_server.put("httproutes", "llm", spec=HTTP_SPEC, **METADATA)
    patch = change_of(HTTP_ROUTE, live, {"chat": CHAT}).patch
    assert patch is not None
    api_server.put("httproutes", "llm", spec=HTTP_SPEC | {"hostnames": ["llm.example"]}, **METADATA)
    with closing(Cluster(api_server.url, NAMESPACE)) as cluster, pytest.raises(ConflictError, match="409"):
        cluster.apply(HTTP_ROUTE, patch)


def test_the_token_of_the_service_account(api_server: ApiServer, tls_simulator: Simulator, tmp_path: Path) -> None:
    """The token is read anew for each call, because it is replaced while the pod runs."""
    assert tls_simulator.ca is not None
    (tmp_path / "ca.crt").write_text(Path(tls_simulator.ca).read_text())
    api_server.token = "first"
    (tmp_path / "token").write_text("first\n")
    with closing(Cluster(api_server.url, NAMESPACE, tmp_path)) as cluster:
        assert cluster.list(HTTP_ROUTE) == []
        api_server.token = "second"
        with pytest.raises(ClusterError, match="401 Unauthorized"):
            cluster.list(HTTP_ROUTE)
        (tmp_path / "token").write_text("second\n")
        assert cluster.list(HTTP_ROUTE) == []


def test_without_the_extra_one_line_names_it() -> None:
    """Without httpx, or without a service account and --server, the command ends with one error and a hint."""
    code = (
        "import sys; sys.modules['httpx'] = None; sys.argv[1:] = ['routes', 'kubernetes', '--region', 'us-east-2'];"
        "from isochrone_client.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "hint: pip install 'isochrone[kubernetes]'\n" in done.stderr
    words = ["-m", "isochrone_client", "routes", "kubernetes", "--region", "us-east-2"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "name the API server with --server" in done.stderr


PAGE = section("gateways.md", "Kubernetes")
MANIFEST = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "routes.yaml").read_text()))
WRITTEN = "http://127.0.0.1:8001"


def test_the_objects_of_the_page_follow_with_the_permissions_of_the_role(
    api_server: ApiServer, routing: FakeCollector, tmp_path: Path
) -> None:
    """The page's command gives its objects the weights of a table, and the Role allows exactly its calls."""
    routing.restart(fresh(48))
    plural_of = {kind: plural for plural, (_, kind) in API_OF.items()}
    objects = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)]
    for one in objects:
        metadata = one["metadata"]
        assert metadata["namespace"] == NAMESPACE
        assert API_OF[plural_of[one["kind"]]][0] == one["apiVersion"]
        parts = {"labels": metadata["labels"], "annotations": metadata["annotations"], "spec": one["spec"]}
        api_server.put(plural_of[one["kind"]], metadata["name"], **parts)
    make_checkout(tmp_path)
    (block,) = blocks_of(PAGE)
    install, follow = block.splitlines()
    assert install == "pip install 'isochrone[kubernetes]'"
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "ISOCHRONE_COLLECTOR": routing.address,
    }
    assert WRITTEN in follow
    line = f"exec {follow.replace(WRITTEN, api_server.url)}"
    with subprocess.Popen(["bash", "-c", line], env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            places = [(plural_of[one["kind"]], one["metadata"]["name"]) for one in objects]
            eventually(30, lambda: {first_weight(api_server, *place) for place in places} == {1000}, "all follow")
            routing.publish(replace(fresh(49), move_within_us=0))
            eventually(30, lambda: first_weight(api_server, "httproutes", "chat") == 0, "the next table")
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    (role,) = [one for one in MANIFEST if one["kind"] == "Role"]
    allowed = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert allowed == api_server.verbs
    groups = {resource: rule["apiGroups"] for rule in role["rules"] for resource in rule["resources"]}
    assert groups == {plural: [api_version.partition("/")[0]] for plural, (api_version, _) in API_OF.items()}


def first_weight(api: ApiServer, plural: str, name: str) -> int:
    return int(api.get(plural, name)["spec"]["rules"][0]["backendRefs"][0]["weight"])


def test_the_deployment_runs_the_command() -> None:
    """The options of the Deployment are options of the command, and it uses the account that has the Role."""
    (deployment,) = [one for one in MANIFEST if one["kind"] == "Deployment"]
    (binding,) = [one for one in MANIFEST if one["kind"] == "RoleBinding"]
    pod = deployment["spec"]["template"]["spec"]
    assert binding["subjects"][0]["name"] == pod["serviceAccountName"]
    assert {one["metadata"]["namespace"] for one in MANIFEST} == {NAMESPACE}
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["isochrone", "routes", "kubernetes"]' in image
    (container,) = pod["containers"]
    words = [sys.executable, "-m", "isochrone_client", "routes", "kubernetes", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert all(word in shown for word in container["args"] if word.startswith("--"))
    identity = container["args"][container["args"].index("--identity") + 1]
    (mount,) = container["volumeMounts"]
    assert identity == f"{mount['mountPath']}/identity.json"
