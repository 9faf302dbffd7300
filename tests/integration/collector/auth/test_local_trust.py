"""Access on the collector's own machine: its user by the Unix socket, other users with a credential only."""

import errno
import json
import os
import pwd
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import httpx
import pytest

from fixtures.collector import Caller, Collector, StartCollector, run_command
from isochrone_common import identity_file
from isochrone_common.local_socket import http_socket
from isochrone_wire.model import Vantage
from testdata import preforked
from testdata.reading import run

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
HTTP = ("--http-listen", "127.0.0.1:0")
CONNECT_AS = """
import os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
sys.exit(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[2]))
"""
NOBODY = 65_534


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that every user may enter, so that only the modes of its content protect it; short, for the socket."""
    with tempfile.TemporaryDirectory(prefix="trust-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ISOCHRONE_")}
    return {**ours, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home)}


@pytest.fixture
def collector(start_collector: StartCollector, home: Path, database_url: str) -> Collector:
    """A collector without options, except for its ports and its database."""
    folder = home / "isochrone" / "collector"
    return start_collector(data_dir=folder, database_url=database_url, trusting=False, more=HTTP)


def asked(environment: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return preforked.run("isochrone_client", *words, env=environment)


def status_of(url: str, credential: str = "") -> int:
    headers = {"Authorization": f"Bearer {credential}"} if credential else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_the_owner_needs_no_option(collector: Collector, environment: dict[str, str], home: Path) -> None:
    """Commands of the collector's user work without options, and an agent without identity gets the plan."""
    (home / "plan.yaml").write_text(PLAN)
    applied = preforked.run("isochrone_collector", "apply", str(home / "plan.yaml"), "--yes", env=environment)
    assert applied.returncode == 0, applied.stderr
    found = asked(environment, "targets", "--output", "json")
    assert found.returncode == 0, found.stderr
    assert "sim/a" in found.stdout
    agent = ("--vantage", "us-1", "--region", "us-east-2", "--data-dir", str(home / "agent"))
    checked = preforked.run("isochrone_agent", "doctor", *agent, env=environment)
    assert f"unix:{collector.data_dir}/collector.sock answers with plan 1" in checked.stdout


def test_another_user_cannot_use_the_socket(collector: Collector, home: Path) -> None:
    """The sockets have mode 0600, also where every user may enter their folder."""
    http_path, path = collector.data_dir / "collector.http.sock", collector.data_dir / "collector.sock"
    assert stat.S_IMODE(http_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for folder in (home / "isochrone", collector.data_dir):
        folder.chmod(0o755)
    for user, reason in ((0, 0), (NOBODY, errno.EACCES)):
        done = subprocess.run([sys.executable, "-I", "-c", CONNECT_AS, str(user), str(path)], check=False)
        assert done.returncode == reason


def test_loopback_takes_a_credential(collector: Collector, environment: dict[str, str], home: Path) -> None:
    """Without a credential a port on loopback answers nobody, with a hint; a reader who joins is answered."""
    hermit = {**environment, "XDG_DATA_HOME": str(home / "other")}
    for module, words, address in (
        ("isochrone_client", ("targets",), collector.http_address),
        ("isochrone_collector", ("plan", "history"), collector.address),
    ):
        refused = preforked.run(module, *words, "--collector", address, env=hermit)
        assert refused.returncode == 1
        assert f"the collector at {address} requires TLS and a credential" in refused.stderr
        assert "--collector unix:PATH" in refused.stderr
        assert "--trust-loopback" in refused.stderr
    agent = ("--vantage", "us-1", "--region", "us-east-2", "--collector", collector.address)
    checked = preforked.run("isochrone_agent", "doctor", *agent, env=hermit)
    assert f"the collector at {collector.address} requires TLS and a credential" in checked.stdout
    token = collector.call.invite("ida", role="reader", region=None)
    joined = asked(hermit, "join", collector.address, "--token", token)
    assert joined.returncode == 0, joined.stderr
    assert asked(hermit, "targets").returncode == 0


def test_http_takes_a_credential(collector: Collector) -> None:
    """HTTP on loopback stays in plain text, and answers readers only, except for its health and metrics."""
    assert collector.http.startswith("http://")
    assert status_of(f"{collector.http}/healthz") == 200
    assert status_of(f"{collector.http}/metrics") == 200
    assert status_of(f"{collector.http}/v1/openapi.json") == 401
    operator = identity_file.read(collector.data_dir / "operator.json")
    assert status_of(f"{collector.http}/v1/openapi.json", operator.credential) == 200


def test_http_has_tls_on_the_same_port(collector: Collector) -> None:
    """Plain HTTP on loopback accepts TLS, too, with the certificate of gRPC, and with it requests for any host."""
    operator = identity_file.read(collector.data_dir / "operator.json")
    assert collector.http == f"http://{operator.http_address}"
    context = ssl.create_default_context(cadata=operator.trust.roots)
    headers = {"Authorization": f"Bearer {operator.credential}", "Host": "isochrone-collector"}
    extensions = {"sni_hostname": operator.trust.server_name}
    with httpx.Client(base_url=f"https://{operator.http_address}", verify=context, trust_env=False) as client:
        assert client.get("/v1/targets", headers=headers, extensions=extensions).status_code == 200
        assert client.get("/v1/targets", extensions=extensions).status_code == 401
    assert httpx.get(f"{collector.http}/v1/targets", headers=headers).status_code == 400


def test_http_on_the_unix_socket(collector: Collector) -> None:
    """HTTP has a Unix socket beside that of gRPC, without a credential; it ends with the collector."""
    path = http_socket(collector.data_dir / "collector.sock")
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://any.example") as client:
        assert client.get("/v1/targets").json()["plan_version"] == 0
        assert client.get("/session").json()["name"] is None
    assert collector.stop() == 0
    assert not path.exists()


def test_the_socket_names_the_user(collector: Collector) -> None:
    """A change over the socket is recorded with the collector's user, whom no credential can be named after."""
    caller = Caller(f"unix:{collector.data_dir}/collector.sock")
    caller.apply(PLAN)
    caller.close()
    found = run_command(
        *("audit", "--output", "json", "--collector", collector.address),
        *("--identity", str(collector.data_dir / "operator.json")),
    )
    entry = json.loads(found.stdout)["entries"][0]
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert (entry["action"], entry["principal"], entry["address"]) == ("plan.apply", f"unix:{user}", "unix")


def test_trusting_loopback_is_as_before(start_collector: StartCollector) -> None:
    """With --trust-loopback every process of this machine is an operator, in plain text, and HTTP is open."""
    collector = start_collector(more=HTTP)
    collector.call.apply(PLAN)
    assert collector.call.fetch_plan(vantage=Vantage(name="us-1", region="us-east-2")) is not None
    assert status_of(f"{collector.http}/v1/openapi.json") == 200
    assert not (collector.data_dir / "operator.json").exists()
    entries = json.loads(run_command("audit", "--output", "json", "--collector", collector.address).stdout)["entries"]
    assert entries[0]["principal"] == "local"


def test_a_socket_that_cannot_be_made(start_collector: StartCollector, tmp_path: Path) -> None:
    """In the data folder it is only reported, for example where its path is too long; a given one ends the start."""
    folder = tmp_path / ("x" * 100)
    collector = start_collector(data_dir=folder, database_url="", trusting=False)
    assert "unix_socket.unavailable" in collector.log()
    assert not (folder / "collector.sock").exists()
    done = run_command("serve", "--listen", "127.0.0.1:0", "--unix-socket", str(tmp_path / "none" / "a.sock"))
    assert done.returncode == 1
    assert "hint: choose another --unix-socket, or off" in done.stderr


def test_a_data_folder_that_cannot_be_written(start_collector: StartCollector, database_url: str, home: Path) -> None:
    """The error names what replaces certificate and socket of the folder, and the collector serves with that."""
    folder = home / "file" / "data"
    folder.parent.write_text("")
    done = run_command(
        *("serve", "--listen", "127.0.0.1:0", "--database-url", database_url, "--data-dir", str(folder)),
        "--http-listen=off",
    )
    assert done.returncode == 1
    assert f"error: cannot write a certificate to {folder / 'tls'}: Not a directory" in done.stderr
    hint = done.stderr.partition("hint: ")[2]
    assert all(option in hint for option in ("--data-dir", "--key", "--unix-socket", "--trust-loopback"))
    assert start_collector(data_dir=folder, database_url=database_url).call.targets().plan_version == 0
    files = start_collector(more=["--tls"]).data_dir / "tls"
    given = ["--certificate", str(files / "certificate.pem"), "--key", str(files / "key.pem")]
    socket = home / "collector.sock"
    more = [*given, "--unix-socket", str(socket)]
    start_collector(data_dir=folder, database_url=database_url, more=more, trusting=False)
    caller = Caller(f"unix:{socket}")
    assert caller.targets().plan_version == 0
    caller.close()


def test_the_port_has_no_plain_text(collector: Collector) -> None:
    """A caller in plain text gets no answer from the port."""
    caller = Caller(collector.address)
    with pytest.raises(grpc.RpcError) as refused:
        caller.access()
    caller.close()
    call: object = refused.value
    assert isinstance(call, grpc.Call)
    assert call.code() is grpc.StatusCode.UNAVAILABLE


def test_the_command_logs_its_user_into_the_page(collector: Collector, environment: dict[str, str]) -> None:
    """By the socket it gets a link for the collector's own credential, of the address that a browser can reach."""
    socket = http_socket(collector.data_dir / "collector.sock")
    printed = run(f"unix:{socket}", "page", **environment).stdout.strip()
    address, _, token = printed.partition("/#login=")
    assert address == f"https://{collector.http_address}"
    with httpx.Client(base_url=address, headers={"Origin": address}, verify=False) as browser:
        assert browser.get("/v1/targets").status_code == 401
        assert browser.post("/session", data={"link": token}).status_code == 204
        assert browser.get("/v1/targets").status_code == 200
        assert browser.get("/session").json()["name"] == identity_file.read(collector.data_dir / "operator.json").name


def test_a_page_without_a_login_has_a_plain_address(start_collector: StartCollector) -> None:
    """Where no credential is required the command prints no token."""
    collector = start_collector(more=HTTP)
    assert run(collector.http_address, "page").output == f"{collector.http}/\n"
