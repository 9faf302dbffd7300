"""The simulator as a process: what clients receive is what the truth tells, and it ends when told."""

import asyncio
import json
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fixtures.simulator import API_KEY, MakeBadCertificate, Simulator, StartSimulator, request_in

CHAT = "/chat/completions"
WORLD = {
    "regions": {"us-east-2": "Ohio", "ap-southeast-1": "Singapore"},
    "models": [
        {
            "id": "steady",
            "provider": "p",
            "ttft_ms": 80,
            "tokens_per_second": 500,
            "answer_tokens": 5,
            "offsets_ms": {"ap-southeast-1": -30},
            "jitter_ms": 0,
            "steady": True,
        },
        {"id": "scarce", "provider": "p", "ttft_ms": 5, "tokens_per_second": 500, "requests_per_minute": 1},
    ],
}


def question(model: str, *, stream: bool = True, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "[0123456789ab] Hi"}]
    return {"model": model, "stream": stream, "messages": messages} | more


def raw_question(model: str) -> bytes:
    body = json.dumps(question(model)).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@contextmanager
def connected(simulator: Simulator) -> Iterator[socket.socket]:
    url = httpx.URL(simulator.base_url)
    with socket.create_connection((url.host, url.port or 0), timeout=30) as connection:
        yield connection


def received(connection: socket.socket, *, until: bytes = b"", count: int = 1, seconds: float = 30.0) -> bytes:
    """Everything up to the `count`th `until`, or until the other side ends or is silent for so long."""
    data = b""
    connection.settimeout(seconds)
    while not (until and data.count(until) >= count):
        try:
            more = connection.recv(65536)
        except TimeoutError:
            break
        if not more:
            break
        data += more
    return data


def request_id_of(response: bytes) -> str:
    return response.split(b"x-request-id: ")[1].split(b"\r\n")[0].decode()


def new_record(simulator: Simulator, request_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        (record,) = simulator.truth(request_id)
        if record["ending"] or time.monotonic() > deadline:
            return record
        time.sleep(0.01)


@pytest.fixture
def world_file(tmp_path: Path) -> Path:
    path = tmp_path / "world.json"
    path.write_text(json.dumps(WORLD))
    return path


def first_content(response: httpx.Response) -> tuple[int, list[str]]:
    """When the first token came, and all the text."""
    first_ns, content = 0, []
    for line in response.iter_lines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                if text := choice["delta"].get("content"):
                    first_ns = first_ns or time.monotonic_ns()
                    content.append(text)
    return first_ns, content


def test_the_truth_lies_between_the_clients_instants(fault_simulator: Simulator) -> None:
    """A request arrives after it was begun, a token leaves before it is there; the client adds its slowness only."""
    excess_us = []
    with httpx.Client(base_url=fault_simulator.base_url, trust_env=False) as client:
        for _ in range(5):
            sent_ns = time.monotonic_ns()
            with client.stream("POST", CHAT, json=question("fault-none")) as response:
                first_ns, content = first_content(response)
            record = new_record(fault_simulator, response.headers["x-request-id"])
            assert sent_ns <= record["request_at_ns"] < record["first_token_at_ns"] <= first_ns
            assert record["first_token_at_ns"] < record["last_token_at_ns"] < record["done_at_ns"]
            assert record["planned_ttft_us"] <= record["true_ttft_us"]
            assert (len(content), record["tokens"]["answer"], record["ending"]) == (40, 40, "complete")
            excess_us.append((first_ns - sent_ns) / 1000 - record["true_ttft_us"])
    assert min(excess_us) < 20_000


def test_a_record_tells_who_asked_what(fault_simulator: Simulator) -> None:
    """Model, region, nonce, fault, plan and wall instant are in the record."""
    before_at = time.time_ns() // 1000
    answer = httpx.post(fault_simulator.base_url + CHAT, json=question("fault-none", max_tokens=3), trust_env=False)
    record = new_record(fault_simulator, answer.headers["x-request-id"])
    assert (record["model"], record["region"], record["nonce"]) == ("fault-none", "us-east-2", "0123456789ab")
    assert (record["fault"], record["dialect"], record["status"], record["stream"]) == (
        "none",
        "openai-chat",
        200,
        True,
    )
    # Milliseconds for the kernel's stamp, which is converted from one clock to the other.
    assert before_at - 10_000 <= record["request_at"] <= time.time_ns() // 1000
    assert record["tokens"] == {"reasoning": 0, "answer": 3, "tool": 0}


def test_a_region_is_a_socket(simulator: StartSimulator, world_file: Path) -> None:
    """The same model through two sockets differs by its offset; pairs taken one after the other show it."""
    running = simulator("us-east-2", "ap-southeast-1", more=["--world", str(world_file)])
    with httpx.Client(trust_env=False) as client:
        for _ in range(5):
            for base_url in running.endpoints.values():
                client.post(base_url + CHAT, json=question("steady")).raise_for_status()
    planned: dict[str, list[int]] = {region: [] for region in running.endpoints}
    for record in running.truth():
        # A busy machine makes some of them later, and none earlier.
        assert 0 <= record["true_ttft_us"] - record["planned_ttft_us"] <= record["worst_late_us"] + 1
        planned[record["region"]].append(record["planned_ttft_us"])
    here, there = (statistics.median(planned[region]) for region in ("us-east-2", "ap-southeast-1"))
    assert there - here == pytest.approx(-30_000, abs=5_000)
    assert here == pytest.approx(80_000, abs=20_000)


def test_a_connection_takes_another_request(fault_simulator: Simulator) -> None:
    """After a complete stream, and after an error, the same connection is answered again, even if both came at once."""
    with connected(fault_simulator) as connection:
        connection.sendall(raw_question("no-such-model") + raw_question("fault-none"))
        first = received(connection, until=b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert (first.count(b"HTTP/1.1 404 Not Found"), first.count(b"HTTP/1.1 200 OK")) == (1, 1)
        connection.sendall(raw_question("fault-no-done"))
        second = received(connection, until=b"\r\n0\r\n\r\n")
    assert second.startswith(b"HTTP/1.1 200 OK")
    assert second.count(b'{"content":"') == 40


def test_a_client_may_ask_to_close(fault_simulator: Simulator) -> None:
    """`Connection: close` and `Expect: 100-continue` are obeyed; what is not HTTP is answered once, and closed."""
    with connected(fault_simulator) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert received(connection).endswith(b"}")
    with connected(fault_simulator) as connection:
        connection.sendall(b"POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert received(connection, until=b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert received(connection, until=b"}}").startswith(b"HTTP/1.1 404")
    with connected(fault_simulator) as connection:
        connection.sendall(b"\x16\x03\x01\r\n\r\n")
        assert received(connection).startswith(b"HTTP/1.1 400 Bad Request")


@pytest.mark.parametrize("key", [None, "sk-wrong"])
def test_without_the_key_there_is_no_answer(simulator_with_key: Simulator, key: str | None) -> None:
    """401 without the right key, and an answer with it."""
    parameters = question("qwen3-8b", stream=False, max_tokens=1)
    wrong = {"authorization": f"Bearer {key}"} if key else {}
    right = {"authorization": f"Bearer {API_KEY}"}
    url = simulator_with_key.base_url + CHAT
    refused = httpx.post(url, json=parameters, headers=wrong, trust_env=False)
    assert (refused.status_code, set(refused.json()["error"])) == (401, {"message", "type", "param", "code"})
    assert httpx.post(url, json=parameters, headers=right, trust_env=False).status_code == 200


def test_beyond_the_limit_is_a_429(simulator: StartSimulator, world_file: Path) -> None:
    """A model's limit is kept, and the headers say how long to wait."""
    running = simulator(more=["--world", str(world_file)])
    with httpx.Client(base_url=running.base_url, trust_env=False) as client:
        answers = [client.post(CHAT, json=question("scarce", stream=False, max_tokens=1)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert 50 <= int(answers[1].headers["retry-after"]) <= 60
    assert answers[1].headers["x-ratelimit-remaining-requests"] == "0"


def test_cut_is_an_end_without_an_end(fault_simulator: Simulator) -> None:
    """Five tokens, then the connection closes without a last chunk, or is reset."""
    with connected(fault_simulator) as connection:
        connection.sendall(raw_question("fault-cut"))
        data = received(connection)
    assert (data.count(b'{"content":"'), data.endswith(b"\r\n0\r\n\r\n")) == (5, False)
    with connected(fault_simulator) as connection:
        connection.sendall(raw_question("fault-reset"))
        data = b""
        while data.count(b'{"content":"') < 5:
            data += connection.recv(65536)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


@pytest.mark.parametrize(("fault", "tokens"), [("stall", 5), ("headers-only", 0), ("silence", 0)])
def test_what_hangs_hangs_until_the_client_leaves(fault_simulator: Simulator, fault: str, tokens: int) -> None:
    """Nothing more comes, the connection stays open, and the truth notices when the client gives up."""
    with connected(fault_simulator) as connection:
        connection.sendall(raw_question(f"fault-{fault}"))
        if tokens:
            data = received(connection, until=b'{"content":"', count=tokens)
        else:
            data = received(connection, until=b"HTTP/1.1 200 OK" if fault == "headers-only" else b"", seconds=0.3)
        data += received(connection, seconds=0.3)
        assert data.count(b'{"content":"') == tokens
        (request_id,) = (r["request_id"] for r in fault_simulator.truth()[-1:])
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
    record = new_record(fault_simulator, request_id)
    assert (record["fault"], record["tokens"]["answer"]) == (fault, tokens)
    assert record["ending"] == "client_left"


def test_a_client_that_leaves_is_noticed(fault_simulator: Simulator) -> None:
    """The record of a stream that nobody wants any more says how far it came."""
    with connected(fault_simulator) as connection:
        connection.sendall(raw_question("fault-none"))
        data = received(connection, until=b'{"content":" ')
    record = new_record(fault_simulator, request_id_of(data))
    assert record["ending"] == "client_left"
    assert 1 <= record["tokens"]["answer"] < 40


async def test_many_streams_keep_their_pace(fault_simulator: Simulator) -> None:
    """Thirty streams at once all complete, each with its own tokens, at the planned rate."""

    async def one(client: httpx.AsyncClient) -> tuple[str, int]:
        answer = await client.post(CHAT, json=question("fault-none"))
        return answer.headers["x-request-id"], answer.text.count('{"content":"')

    async with httpx.AsyncClient(base_url=fault_simulator.base_url, trust_env=False, timeout=30) as client:
        answers = await asyncio.gather(*(one(client) for _ in range(30)))
    assert [tokens for _, tokens in answers] == [40] * 30
    truth = {record["request_id"]: record for record in fault_simulator.truth()}
    records = [truth[request_id] for request_id, _ in answers]
    assert len({record["request_id"] for record in records}) == 30
    # No token is earlier than planned, or later than the record says.
    for record in records:
        streamed_us = (record["last_token_at_ns"] - record["first_token_at_ns"]) / 1000
        assert abs(streamed_us - 39 * 5_000) <= record["worst_late_us"] + 1_000


def test_it_ends_when_told(simulator: StartSimulator, tmp_path: Path) -> None:
    """SIGTERM ends it with 0 in the middle of a stream, and the file of the truth holds what there was."""
    path = tmp_path / "truth.jsonl"
    running = simulator(more=["--truth", str(path)])
    with connected(running) as connection:
        connection.sendall(raw_question("fault-cut"))
        received(connection)
    with connected(running) as connection:
        connection.sendall(raw_question("qwen3.5-397b"))
        received(connection, until=b'"role"')
        assert running.stop() == 0
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(record["model"], record["ending"]) for record in told] == [
        ("fault-cut", "complete"),
        ("qwen3.5-397b", "stopped"),
    ]


def test_a_taken_port_is_told(fault_simulator: Simulator) -> None:
    """A port that is in use is exit code 1, a sentence and a hint."""
    port = httpx.URL(fault_simulator.base_url).port
    command = [sys.executable, "-m", "isochrone_sim", "serve", "--listen", f"127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "hint:" in done.stderr


DIALECTS = ["openai-chat", "openai-responses", "anthropic", "gemini", "cohere"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_served_under_tls(tls_simulator: Simulator, dialect: str) -> None:
    """A client that trusts `ca` gets the whole stream, and finds its record by the id in the headers."""
    path, headers, body = request_in(dialect, "fault-none")
    with httpx.Client(verify=tls_simulator.trust, trust_env=False) as client:
        url = httpx.URL(tls_simulator.base_url).join(path)
        answer = client.post(url, headers=headers, content=body)
    request_id = answer.headers.get("x-request-id") or answer.headers["request-id"]
    record = new_record(tls_simulator, request_id)
    assert (record["dialect"], record["ending"], record["tokens"]["answer"]) == (dialect, "complete", 40)
    assert url.path.startswith(httpx.URL(tls_simulator.base_url_of(dialect)).path)


@pytest.mark.skipif(sys.platform != "linux", reason="kernel receive timestamps are Linux's")
def test_requests_are_stamped_by_the_kernel_under_tls(tls_simulator: Simulator) -> None:
    """A request that came while the simulator was stopped is stamped with its arrival, not with its reader."""
    with (
        connected(tls_simulator) as plain,
        tls_simulator.trust.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(raw_question("fault-none"))
        received(connection, until=b"\r\n0\r\n\r\n")
        os.kill(tls_simulator.pid, signal.SIGSTOP)
        try:
            before_ns = time.monotonic_ns()
            connection.sendall(raw_question("fault-none"))
            sent_ns = time.monotonic_ns()
            time.sleep(0.1)
        finally:
            os.kill(tls_simulator.pid, signal.SIGCONT)
        answer = received(connection, until=b"\r\n0\r\n\r\n")
    record = new_record(tls_simulator, request_id_of(answer))
    # The kernel's stamp is converted from the wall clock by reading two clocks, one after the other.
    assert before_ns - 10_000_000 <= record["request_at_ns"] <= sent_ns + 10_000_000
    assert record["buffered"] is False


def tls_received(simulator: Simulator, model: str) -> tuple[bytes, Exception | None]:
    """What comes until the connection ends, and with which error it does."""
    data = b""
    with (
        connected(simulator) as plain,
        simulator.trust.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as connection,
    ):
        connection.sendall(raw_question(model))
        try:
            while more := connection.recv(65536):
                data += more
        except OSError as error:
            return data, error
    return data, None


def test_connections_break_under_tls_too(tls_simulator: Simulator) -> None:
    """`cut` says good-bye as TLS wants it, `reset` does not."""
    cut, farewell = tls_received(tls_simulator, "fault-cut")
    reset, broken = tls_received(tls_simulator, "fault-reset")
    assert (cut.count(b'{"content":"'), farewell) == (5, None)
    assert reset.count(b'{"content":"') <= 5
    # Python's ssl tells a reset as an end of file that violates the protocol.
    assert isinstance(broken, ssl.SSLEOFError | ConnectionResetError)


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [("expired", "expired"), ("wrong-host", "not valid for '127.0.0.1'"), ("untrusted", "self.signed certificate")],
)
def test_bad_certificates_are_bad(
    simulator: StartSimulator, bad_certificate: MakeBadCertificate, flaw: str, reason: str
) -> None:
    """Each is refused by a client that verifies, for its own reason."""
    bad = bad_certificate(flaw)
    running = simulator(more=bad.options)
    trust = ssl.create_default_context(cafile=bad.trusted)
    with pytest.raises(httpx.ConnectError, match=reason):
        httpx.get(running.base_url + "/models", verify=trust, trust_env=False)


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    """One without the other, or files that hold neither, are exit code 2, a sentence and a hint."""
    path = tmp_path / "empty.pem"
    path.touch()
    for options in (["--tls-cert", str(path)], ["--tls-cert", str(path), "--tls-key", str(path)]):
        command = [sys.executable, "-m", "isochrone_sim", "serve", "--listen", "127.0.0.1:0", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert (done.returncode, done.stdout, "hint:" in done.stderr) == (2, "", True)


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize("fault", ["flood", "endless-comments"])
def test_a_flood_takes_no_memory(simulator: StartSimulator, fault: str) -> None:
    """A hundred megabytes, read as they come and then not read at all, leave the simulator as small as it was."""
    running = simulator()
    before_kb = resident_kb(running.pid)
    with connected(running) as connection:
        connection.sendall(raw_question(f"fault-{fault}"))
        buffer, size = bytearray(1 << 20), 0
        while size < 100_000_000:
            size += (read := connection.recv_into(buffer))
            assert read
        time.sleep(0.2)
        assert resident_kb(running.pid) - before_kb < 20_000
        # Who does not read is waited for, and others are served meanwhile.
        assert httpx.get(running.base_url + "/models", trust_env=False).status_code == 200
    record = new_record(running, running.truth()[-1]["request_id"])
    assert (record["fault"], record["ending"], record["buffered"]) == (fault, "client_left", True)
    assert record["tokens"]["answer"] >= 5


def test_compressed_events_come_one_by_one(fault_simulator: Simulator) -> None:
    """Under gzip each token is there before the next: those before a stall arrive, although the stream has no end."""
    accept, content = {"accept-encoding": "gzip"}, list[str]()
    with httpx.Client(base_url=fault_simulator.base_url, trust_env=False, timeout=30) as client:
        with client.stream("POST", CHAT, json=question("fault-none"), headers=accept) as response:
            assert (response.headers["content-encoding"], len(first_content(response)[1])) == ("gzip", 40)
        with client.stream("POST", CHAT, json=question("fault-stall"), headers=accept) as response:
            for line in response.iter_lines():
                content += ["content"] if '{"content":"' in line else []
                if len(content) == 5:
                    break
    assert response.headers["content-encoding"] == "gzip"
