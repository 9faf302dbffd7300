"""Borrow a world of LLM providers: real `isochrone-sim serve` processes with known timing."""

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

BASELINE = "us-east-2"
API_KEY = "sk-simulator-right-key"
STOP_SECONDS = 10.0
# A long time ago, as `openssl ca` writes it.
PAST = ("20200101000000Z", "20200102000000Z")
BUDGETS = {"low": 1024, "medium": 4096, "high": 16_384}


@dataclass(slots=True, kw_only=True)
class Simulator:
    """A running simulator. `endpoints` are base URLs by client region; each ends in `/v1`, without a slash. `ca` is the
    file to trust when it made its own certificate.
    """

    process: subprocess.Popen[str] = field(repr=False)
    endpoints: dict[str, str]
    ca: str | None = None

    @property
    def base_url(self) -> str:
        """The baseline region's base URL, or the first one's."""
        return self.endpoints.get(BASELINE) or next(iter(self.endpoints.values()))

    def base_url_of(self, dialect: str) -> str:
        """What a target of this dialect has as its base URL."""
        return self.base_url.removesuffix("/v1") + {"gemini": "/v1beta", "cohere": "/v2"}.get(dialect, "/v1")

    @property
    def trust(self) -> ssl.SSLContext | bool:
        """What httpx takes as `verify`."""
        return ssl.create_default_context(cafile=self.ca) if self.ca else True

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def truth(self, request_id: str | None = None) -> list[dict[str, Any]]:
        """What really happened, one record per exchange, oldest first; or the record of one request."""
        address = self.base_url.removesuffix("/v1") + "/truth"
        params = {"request_id": request_id} if request_id else None
        told = httpx.get(address, params=params, trust_env=False, verify=self.trust)
        return [json.loads(line) for line in told.text.splitlines()]

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)


class StartSimulator(Protocol):
    """Starts a simulator with one socket per region, and a model for every fault."""

    def __call__(self, *regions: str, more: Sequence[str] = ()) -> Simulator:
        """The simulator, reachable. `more` are further options of `isochrone-sim serve`."""
        ...


@pytest.fixture
def simulator() -> Iterator[StartSimulator]:
    """Simulators that end with the test."""
    running: list[Simulator] = []

    def start(*regions: str, more: Sequence[str] = ()) -> Simulator:
        running.append(_start(regions or (BASELINE,), more))
        return running[-1]

    yield start
    for each in running:
        _end(each)


@pytest.fixture(scope="session")
def fault_simulator() -> Iterator[Simulator]:
    """One simulator for all tests that do not mind each other's requests."""
    with running() as simulator:
        yield simulator


@pytest.fixture
def simulator_with_key() -> Iterator[Simulator]:
    """A simulator that answers nobody without `API_KEY`."""
    with running("--api-key", API_KEY) as simulator:
        yield simulator


@pytest.fixture(scope="session")
def tls_simulator() -> Iterator[Simulator]:
    """A simulator that speaks TLS with a certificate of its own, which its `ca` vouches for."""
    with running("--self-signed") as simulator:
        yield simulator


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCertificate:
    """A certificate that a client must refuse. `trusted` is what it may trust: the certificate itself where something
    else is wrong with it, else `None`.
    """

    chain: Path
    key: Path
    trusted: Path | None

    @property
    def options(self) -> list[str]:
        """The options of `isochrone-sim serve` that use it."""
        return ["--tls-cert", str(self.chain), "--tls-key", str(self.key)]


class MakeBadCertificate(Protocol):
    """Makes a certificate that is `expired`, for a `wrong-host`, or `untrusted` and else in order."""

    def __call__(self, flaw: str) -> BadCertificate:
        """The certificate, in files of its own."""
        ...


@pytest.fixture
def bad_certificate(tmp_path: Path) -> MakeBadCertificate:
    """Certificates with one flaw each, made by openssl."""

    def make(flaw: str) -> BadCertificate:
        folder = tmp_path / flaw
        folder.mkdir()
        host = "DNS:elsewhere.example" if flaw == "wrong-host" else "IP:127.0.0.1,DNS:localhost"
        chain = certificate_for(folder, host, PAST if flaw == "expired" else None)
        return BadCertificate(chain=chain, key=folder / "key.pem", trusted=None if flaw == "untrusted" else chain)

    return make


def certificate_for(folder: Path, host: str, dates: tuple[str, str] | None = None) -> Path:
    """A certificate signed by itself, with `key.pem` beside it; `openssl ca` makes it, which alone can date one back.

    `host` is what openssl calls a subject alternative name, like `DNS:localhost`.
    """
    config = folder / "openssl.cnf"
    config.write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\n"
        f"policy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n[e]\nsubjectAltName={host}\n"
    )
    (folder / "index").touch()
    period = ["-startdate", dates[0], "-enddate", dates[1]] if dates else ["-days", "2"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    files = ["-keyfile", "key.pem", "-in", "request.pem", "-out", "certificate.pem"]
    for command in (
        ["req", "-new", *key, "-subj", "/CN=sim", "-out", "request.pem"],
        ["ca", "-config", "openssl.cnf", "-batch", "-notext", "-selfsign", *period, *files],
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    return folder / "certificate.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a request in any dialect says."""

    model: str
    stream: bool
    limit: int
    effort: str | None
    aloud: bool
    key: str | None

    @property
    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def common(self) -> dict[str, Any]:
        messages = [{"role": "user", "content": _TEXT}]
        return {"model": self.model, "stream": self.stream, "messages": messages, "max_tokens": self.limit}


_TEXT = "[0123456789ab] Hi"
_Asked = tuple[str, dict[str, str], dict[str, Any]]


def _chat(wanted: _Wanted) -> _Asked:
    effort = {"reasoning_effort": wanted.effort} if wanted.effort else {}
    body = wanted.common | {"stream_options": {"include_usage": True}} | effort
    return "/v1/chat/completions", wanted.bearer, body


def _responses(wanted: _Wanted) -> _Asked:
    reasoning = {"effort": wanted.effort} | ({"summary": "auto"} if wanted.aloud else {})
    body = {"model": wanted.model, "stream": wanted.stream, "input": _TEXT, "max_output_tokens": wanted.limit}
    return "/v1/responses", wanted.bearer, body | ({"reasoning": reasoning} if wanted.effort else {})


def _anthropic(wanted: _Wanted) -> _Asked:
    headers = {"anthropic-version": "2023-06-01"} | ({"x-api-key": wanted.key} if wanted.key else {})
    budget = BUDGETS.get(wanted.effort or "")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else {}
    return "/v1/messages", headers, wanted.common | thinking


def _gemini(wanted: _Wanted) -> _Asked:
    method = "streamGenerateContent?alt=sse" if wanted.stream else "generateContent"
    config: dict[str, Any] = {"maxOutputTokens": wanted.limit}
    if wanted.effort:
        config["thinkingConfig"] = {"thinkingBudget": BUDGETS[wanted.effort], "includeThoughts": wanted.aloud}
    body = {"contents": [{"role": "user", "parts": [{"text": _TEXT}]}], "generationConfig": config}
    headers = {"x-goog-api-key": wanted.key} if wanted.key else {}
    return f"/v1beta/models/{wanted.model}:{method}", headers, body


def _cohere(wanted: _Wanted) -> _Asked:
    thinking = {"thinking": {"type": "enabled"}} if wanted.effort else {}
    return "/v2/chat", wanted.bearer, wanted.common | thinking


_QUESTIONS = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "cohere": _cohere,
}


def question_in(
    dialect: str,
    model: str,
    *,
    stream: bool = True,
    limit: int = 4000,
    effort: str | None = None,
    aloud: bool = True,
    key: str | None = None,
) -> tuple[str, dict[str, str], bytes]:
    """A request in a dialect: path with query, headers, body. `effort` asks a model to reason, `aloud` to tell it."""
    wanted = _Wanted(model=model, stream=stream, limit=limit, effort=effort, aloud=aloud, key=key)
    path, headers, body = _QUESTIONS[dialect](wanted)
    return path, headers | {"content-type": "application/json"}, json.dumps(body).encode()


@contextmanager
def running(*more: str) -> Iterator[Simulator]:
    """A simulator with these further options of `isochrone-sim serve`, for as long as it is needed."""
    simulator = _start((BASELINE,), more)
    try:
        yield simulator
    finally:
        _end(simulator)


def _start(regions: Sequence[str], more: Sequence[str]) -> Simulator:
    listens = [option for region in regions for option in ("--listen", f"{region}=127.0.0.1:0")]
    command = [sys.executable, "-m", "isochrone_sim", "serve", "--faults", *listens, *more]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.stdout.close()
        pytest.fail(f"isochrone-sim did not start: exit code {process.wait(STOP_SECONDS)}")
    told = json.loads(line)
    return Simulator(process=process, endpoints=told["endpoints"], ca=told.get("ca"))


def _end(running: Simulator) -> None:
    if running.process.poll() is None:
        running.process.terminate()
        try:
            running.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
    if running.process.stdout is not None:
        running.process.stdout.close()
