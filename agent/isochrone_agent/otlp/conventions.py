"""Probes in the terms of OpenTelemetry's semantic conventions for generative AI (semantic-conventions-genai, status:
development). Pure; instants are microseconds since the epoch.

Where the convention defines a quantity differently from a `Sample`, the value is that of the convention: see
`docs/opentelemetry.md`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from isochrone_agent.probe.prober import ProbeTimes
from isochrone_wire.model import SECOND_US, Outcome, Sample, Target, TokenSource

DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE = "gen_ai.client.token.usage"
# The class bounds that the convention recommends.
SECONDS_BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKEN_BOUNDS = tuple(4**power for power in range(14))

Attributes = dict[str, str | int | float | bool]

_OPERATIONS = {"gemini": "generate_content"}
_CHAT = "chat"
# Names that the convention prescribes, by the provider's name in the plan.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "moonshot": "moonshot_ai",
    "moonshotai": "moonshot_ai",
    "openai-responses": "openai",
    "vertex": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
    "x-ai": "x_ai",
}
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of a probe from one instant to another."""

    name: str
    from_at: int
    until_at: int


def attributes(target: Target, sample: Sample) -> Attributes:
    """Return the attributes of metrics and spans. `error.type` is the HTTP status of a refused request, otherwise the
    outcome.
    """
    url = urlsplit(target.base_url)
    found: Attributes = {
        "gen_ai.operation.name": _OPERATIONS.get(target.dialect, _CHAT),
        "gen_ai.provider.name": _PROVIDERS.get(target.provider, target.provider),
        "gen_ai.request.model": target.model,
        "isochrone.target": target.name,
    }
    if url.hostname:
        found["server.address"] = url.hostname
        found["server.port"] = url.port or _PORTS.get(url.scheme, 443)
    if sample.outcome is not Outcome.OK:
        is_status = sample.http_status is not None and sample.http_status >= 400  # noqa: PLR2004  # HTTP's errors
        found["error.type"] = str(sample.http_status) if is_status else sample.outcome.value
    return found


def span_attributes(target: Target, sample: Sample, times: ProbeTimes) -> Attributes:
    """Return the further attributes of a probe's span. Neither prompts nor answers are among them."""
    first_s = first_chunk_s(sample, times)
    optional = {
        "gen_ai.request.temperature": target.workload.temperature,
        "gen_ai.response.time_to_first_chunk": first_s,
        "gen_ai.usage.cache_read.input_tokens": sample.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": sample.reasoning_tokens,
        "http.response.status_code": sample.http_status,
        "network.peer.address": sample.remote_address,
        **{f"gen_ai.usage.{kind}_tokens": count for kind, count in tokens(sample).items()},
    }
    return {
        **attributes(target, sample),
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": target.workload.max_output_tokens,
        "isochrone.outcome": sample.outcome.value,
        "isochrone.round_at": sample.round_at,
        **{name: value for name, value in optional.items() if value is not None},
    }


def tokens(sample: Sample) -> dict[str, int]:
    """Return the tokens that the provider stated, by `gen_ai.token.type`; estimates are not reported."""
    if sample.token_source is not TokenSource.USAGE:
        return {}
    counts = {"input": sample.prompt_tokens, "output": sample.output_tokens}
    return {kind: count for kind, count in counts.items() if count is not None}


def duration_s(sample: Sample, times: ProbeTimes) -> float:
    """Return the seconds from the begin of the probe, with its connection, to the end of the response or the error."""
    return max(times.ended_at - sample.dispatched_at, 0) / SECOND_US


def first_chunk_s(sample: Sample, times: ProbeTimes) -> float | None:
    """Return the seconds from the begin of the probe, with its connection, to the first chunk that has a token."""
    if sample.ttft_us is None or times.sent_at is None:
        return None
    return (times.sent_at + sample.ttft_us - sample.dispatched_at) / SECOND_US


def phases(sample: Sample, times: ProbeTimes) -> Iterator[Phase]:
    """Yield the phases that took place, in order. Each begins when the one before it ends."""
    at = sample.dispatched_at
    for name, us in (("dns", sample.dns_us), ("connect", sample.tcp_us), ("tls", sample.tls_us)):
        if us is not None:
            yield Phase(name=name, from_at=at, until_at=at + us)
            at += us
    if times.sent_at is None:
        return
    # The phases are rounded one by one, so the sum may be a microsecond later.
    yield Phase(name="request sent", from_at=min(at, times.sent_at), until_at=times.sent_at)
    at = times.sent_at
    for name, us in (("first byte", sample.ttfb_us), ("first token", sample.ttft_us), ("last token", sample.e2e_us)):
        if us is not None:
            yield Phase(name=name, from_at=at, until_at=max(times.sent_at + us, at))
            at = max(times.sent_at + us, at)
