"""Fixtures for simulated LLM providers: real `isochrone-sim serve` processes with known timing."""

import json
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from testdata.preforked import Program

BASELINE = "us-east-2"
API_KEY = "sk-simulator-right-key"
STOP_SECONDS = 10.0
# A validity period in the past, in the format of `openssl ca`.
PAST = ("20200101000000Z", "20200102000000Z")
BUDGETS = {"low": 1024, "medium": 4096, "high": 16_384}


@dataclass(slots=True, kw_only=True)
class Simulator:
    """A running simulator. `endpoints` are base URLs by client region, ending in `/v1` without a slash. `ca` is the
    file to trust if the certificate is self-signed.
    """

    process: subprocess.Popen[str] = field(repr=False)
    endpoints: dict[str, str]
    ca: str | None = None

    @property
    def base_url(self) -> str:
        """The baseline region's base URL, or the first one."""
        return self.endpoints.get(BASELINE) or next(iter(self.endpoints.values()))

    def base_url_of(self, dialect: str) -> str:
        """Return the base URL of targets in this dialect."""
        return self.base_url.removesuffix("/v1") + {"gemini": "/v1beta", "cohere": "/v2"}.get(dialect, "/v1")

    @property
    def trust(self) -> ssl.SSLContext | bool:
        """The `verify` argument of httpx."""
        return ssl.create_default_context(cafile=self.ca) if self.ca else True

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def truth(self, request_id: str | None = None) -> list[dict[str, Any]]:
        """Return the ground truth, one record per exchange, oldest first; or the record of one request."""
        address = self.base_url.removesuffix("/v1") + "/truth"
        params = {"request_id": request_id} if request_id else None
        response = httpx.get(address, params=params, trust_env=False, verify=self.trust)
        return [json.loads(line) for line in response.text.splitlines()]

    def endings(self, after: int) -> list[str | None]:
        """Return how each exchange after the first so many has ended: `complete` or `client_left`; `None` if it has
        not.
        """
        return [record["ending"] for record in self.truth()[after:]]

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)


class StartSimulator(Protocol):
    """Starts a simulator with one socket per region, and a model per fault."""

    def __call__(self, *regions: str, more: Sequence[str] = ()) -> Simulator:
        """Return the running simulator. `more` are further options of `isochrone-sim serve`."""
        ...


@pytest.fixture
def simulator() -> Iterator[StartSimulator]:
    """Simulators that are stopped after the test."""
    running: list[Simulator] = []

    def start(*regions: str, more: Sequence[str] = ()) -> Simulator:
        running.append(_start(regions or (BASELINE,), more))
        return running[-1]

    yield start
    for each in running:
        _end(each)


@pytest.fixture(scope="session")
def fault_simulator() -> Iterator[Simulator]:
    """One simulator for all tests that are independent of other requests."""
    with running() as simulator:
        yield simulator


@pytest.fixture
def simulator_with_key() -> Iterator[Simulator]:
    """A simulator that requires `API_KEY`."""
    with running("--api-key", API_KEY) as simulator:
        yield simulator


@pytest.fixture(scope="session")
def tls_simulator() -> Iterator[Simulator]:
    """A simulator with TLS and a self-signed certificate, in `ca`."""
    with running("--self-signed") as simulator:
        yield simulator


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCertificate:
    """A certificate that a client must reject. `trusted` is the certificate to trust, for flaws other than trust, else
    `None`.
    """

    chain: Path
    key: Path
    trusted: Path | None

    @property
    def options(self) -> list[str]:
        """The options of `isochrone-sim serve` for this certificate."""
        return ["--tls-cert", str(self.chain), "--tls-key", str(self.key)]


class MakeBadCertificate(Protocol):
    """Creates a certificate that is `expired`, for a `wrong-host`, or `untrusted`, and otherwise valid."""

    def __call__(self, flaw: str) -> BadCertificate:
        """Return the certificate."""
        ...


@pytest.fixture
def bad_certificate(tmp_path: Path) -> MakeBadCertificate:
    """Certificates with one flaw each, created by openssl."""

    def make(flaw: str) -> BadCertificate:
        folder = tmp_path / flaw
        folder.mkdir()
        host = "DNS:elsewhere.example" if flaw == "wrong-host" else "IP:127.0.0.1,DNS:localhost"
        chain = certificate_for(folder, host, PAST if flaw == "expired" else None)
        return BadCertificate(chain=chain, key=folder / "key.pem", trusted=None if flaw == "untrusted" else chain)

    return make


def certificate_for(folder: Path, host: str, dates: tuple[str, str] | None = None) -> Path:
    """Return a self-signed certificate with `key.pem` beside it, created by `openssl ca`, which can set a past date.

    `host` is a subject alternative name in the format of openssl, such as `DNS:localhost`.
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
class _RequestOptions:
    """The options of a request, independent of the dialect."""

    model: str
    stream: bool
    limit: int
    effort: str | None
    send_reasoning: bool
    key: str | None

    @property
    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def common(self) -> dict[str, Any]:
        messages = [{"role": "user", "content": _TEXT}]
        return {"model": self.model, "stream": self.stream, "messages": messages, "max_tokens": self.limit}


_TEXT = "[0123456789ab] Hi"
_HttpRequest = tuple[str, dict[str, str], dict[str, Any]]


def _chat(options: _RequestOptions) -> _HttpRequest:
    effort = {"reasoning_effort": options.effort} if options.effort else {}
    body = options.common | {"stream_options": {"include_usage": True}} | effort
    return "/v1/chat/completions", options.bearer, body


def _responses(options: _RequestOptions) -> _HttpRequest:
    reasoning = {"effort": options.effort} | ({"summary": "auto"} if options.send_reasoning else {})
    body = {"model": options.model, "stream": options.stream, "input": _TEXT, "max_output_tokens": options.limit}
    return "/v1/responses", options.bearer, body | ({"reasoning": reasoning} if options.effort else {})


def _anthropic(options: _RequestOptions) -> _HttpRequest:
    headers = {"anthropic-version": "2023-06-01"} | ({"x-api-key": options.key} if options.key else {})
    budget = BUDGETS.get(options.effort or "")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else {}
    return "/v1/messages", headers, options.common | thinking


def _gemini(options: _RequestOptions) -> _HttpRequest:
    method = "streamGenerateContent?alt=sse" if options.stream else "generateContent"
    config: dict[str, Any] = {"maxOutputTokens": options.limit}
    if options.effort:
        config["thinkingConfig"] = {
            "thinkingBudget": BUDGETS[options.effort],
            "includeThoughts": options.send_reasoning,
        }
    body = {"contents": [{"role": "user", "parts": [{"text": _TEXT}]}], "generationConfig": config}
    headers = {"x-goog-api-key": options.key} if options.key else {}
    return f"/v1beta/models/{options.model}:{method}", headers, body


def _cohere(options: _RequestOptions) -> _HttpRequest:
    thinking = {"thinking": {"type": "enabled"}} if options.effort else {}
    return "/v2/chat", options.bearer, options.common | thinking


_REQUEST_BUILDERS = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "cohere": _cohere,
}


def request_in(
    dialect: str,
    model: str,
    *,
    stream: bool = True,
    limit: int = 4000,
    effort: str | None = None,
    send_reasoning: bool = True,
    key: str | None = None,
) -> tuple[str, dict[str, str], bytes]:
    """Return a request in a dialect: path with query, headers, body. `effort` requests reasoning, `send_reasoning` its
    text.
    """
    options = _RequestOptions(
        model=model, stream=stream, limit=limit, effort=effort, send_reasoning=send_reasoning, key=key
    )
    path, headers, body = _REQUEST_BUILDERS[dialect](options)
    return path, headers | {"content-type": "application/json"}, json.dumps(body).encode()


@contextmanager
def running(*more: str) -> Iterator[Simulator]:
    """Run a simulator with these further options of `isochrone-sim serve` for the duration of the block."""
    simulator = _start((BASELINE,), more)
    try:
        yield simulator
    finally:
        _end(simulator)


def _start(regions: Sequence[str], more: Sequence[str]) -> Simulator:
    listens = [option for region in regions for option in ("--listen", f"{region}=127.0.0.1:0")]
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    process = Program[str]("isochrone_sim", "serve", "--faults", *listens, *more, **quiet)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.stdout.close()
        pytest.fail(f"isochrone-sim did not start: exit code {process.wait(STOP_SECONDS)}")
    ready = json.loads(line)
    return Simulator(process=process, endpoints=ready["endpoints"], ca=ready.get("ca"))


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
