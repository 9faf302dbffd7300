"""docs/gateways.md and deploy/kubernetes/routes.yaml keep their word."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import yaml

from fixtures.fake_collector import FakeCollector
from fixtures.kubernetes import API_OF, NAMESPACE, ApiServer
from testdata.documented_commands import ROOT, blocks_of, make_checkout, section
from testdata.routes import fresh
from testdata.waiting import eventually

PAGE = section("gateways.md", "Kubernetes")
MANIFEST = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "routes.yaml").read_text()))
WRITTEN = "http://127.0.0.1:8001"


def test_the_objects_of_the_page_follow_with_the_permissions_of_the_role(
    api_server: ApiServer, routing: FakeCollector, tmp_path: Path
) -> None:
    """The command of the page gives the objects of the page the weights of a table, and the Role allows exactly the
    calls that it makes.
    """
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
