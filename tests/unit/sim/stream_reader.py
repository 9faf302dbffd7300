"""What a client makes of a stream, for each dialect: written after the APIs, not after the simulator."""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import h11

from fixtures.simulator import request_in
from isochrone_sim.requests import Request
from isochrone_sim.script import Channel
from isochrone_sim.server.service import Arrival, Reply, Service
from isochrone_sim.settings import gather_world

WORLD = gather_world(None, faults=True)
ARRIVAL = Arrival(region="us-east-2", at_ns=0, at=1_779_235_200_000_000, request_id="req_1")


@dataclass(kw_only=True)
class ParsedStream:
    """What a client makes of a stream: pieces by channel, the last count of each kind, and how it ended."""

    pieces: list[tuple[Channel, str]] = field(default_factory=list)
    empty: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    garbage: int = 0
    after_the_end: int = 0

    def add_text(self, channel: Channel, text: object) -> None:
        """Hear a piece, which may be empty."""
        if not text:
            self.empty += 1
        elif self.finished:
            self.after_the_end += 1
        else:
            self.pieces.append((channel, str(text)))

    def count(self, **counts: int) -> None:
        """Hear counts of tokens; the last ones are believed."""
        self.counts |= counts

    def text(self, channel: Channel) -> str:
        return "".join(text for where, text in self.pieces if where is channel)


def parse_chat(parsed: ParsedStream, message: dict[str, Any]) -> None:
    if "error" in message:
        parsed.errors.append(message["error"]["message"])
    for choice in message.get("choices", ()):
        delta = choice["delta"]
        for name, channel in (("content", Channel.ANSWER), ("reasoning_content", Channel.REASONING)):
            if name in delta:
                parsed.add_text(channel, delta[name])
        for call in delta.get("tool_calls", ()):
            parsed.add_text(Channel.TOOL, call["function"].get("arguments"))
        if choice["finish_reason"]:
            parsed.finished.append(choice["finish_reason"])
    if usage := message.get("usage"):
        details = usage["completion_tokens_details"]
        parsed.count(prompt=usage["prompt_tokens"], output=usage["completion_tokens"])
        parsed.count(reasoning=details["reasoning_tokens"])


def parse_responses(parsed: ParsedStream, message: dict[str, Any]) -> None:
    channels = {"output_text": Channel.ANSWER, "reasoning_summary_text": Channel.REASONING}
    channels["function_call_arguments"] = Channel.TOOL
    kind = message.get("type", "").removeprefix("response.")
    if kind.endswith(".delta"):
        parsed.add_text(channels[kind.removesuffix(".delta")], message["delta"])
    if kind == "content_part.added":
        parsed.add_text(Channel.ANSWER, message["part"]["text"])
    if kind == "error":
        parsed.errors.append(message["message"])
    if kind in ("completed", "incomplete"):
        parsed.finished.append(message["response"]["status"])
        if usage := message["response"].get("usage"):
            details = usage["output_tokens_details"]
            parsed.count(prompt=usage["input_tokens"], output=usage["output_tokens"])
            parsed.count(reasoning=details["reasoning_tokens"])


def parse_anthropic(parsed: ParsedStream, message: dict[str, Any]) -> None:
    fields = {"text_delta": ("text", Channel.ANSWER), "thinking_delta": ("thinking", Channel.REASONING)}
    fields["input_json_delta"] = ("partial_json", Channel.TOOL)
    kind, delta = message.get("type"), message.get("delta", {})
    if kind == "content_block_delta" and delta["type"] in fields:
        name, channel = fields[delta["type"]]
        parsed.add_text(channel, delta[name])
    if kind == "content_block_start":
        parsed.add_text(Channel.ANSWER, "")
    if kind == "message_start" and "usage" in message["message"]:
        parsed.count(prompt=message["message"]["usage"]["input_tokens"])
    if kind == "message_delta" and "usage" in message:
        usage = message["usage"]
        parsed.count(output=usage["output_tokens"])
        parsed.count(reasoning=usage.get("output_tokens_details", {}).get("thinking_tokens", 0))
    if kind == "message_stop":
        parsed.finished.append(kind)
    if kind == "error":
        parsed.errors.append(message["error"]["message"])


def parse_gemini(parsed: ParsedStream, message: dict[str, Any]) -> None:
    if "error" in message:
        parsed.errors.append(message["error"]["message"])
    for candidate in message.get("candidates", ()):
        for part in candidate["content"].get("parts", [{}]):
            if "functionCall" in part:
                parsed.add_text(Channel.TOOL, json.dumps(part["functionCall"]["args"]))
            else:
                parsed.add_text(Channel.REASONING if part.get("thought") else Channel.ANSWER, part.get("text"))
        if "finishReason" in candidate:
            parsed.finished.append(candidate["finishReason"])
    if usage := message.get("usageMetadata"):
        thoughts = usage.get("thoughtsTokenCount", 0)
        parsed.count(prompt=usage["promptTokenCount"], reasoning=thoughts)
        parsed.count(output=usage.get("candidatesTokenCount", 0) + thoughts)


def parse_cohere(parsed: ParsedStream, message: dict[str, Any]) -> None:
    kind, delta = message.get("type"), message.get("delta", {})
    message_delta = delta.get("message", {})
    if kind in ("content-start", "content-delta"):
        content = message_delta["content"]
        channel = Channel.REASONING if "thinking" in content else Channel.ANSWER
        parsed.add_text(channel, content.get("thinking", content.get("text")))
    if kind == "tool-call-delta":
        parsed.add_text(Channel.TOOL, message_delta["tool_calls"]["function"]["arguments"])
    if kind == "message-end" and delta["finish_reason"] == "ERROR":
        parsed.errors.append(delta["error"])
    elif kind == "message-end":
        parsed.finished.append(delta["finish_reason"])
        if "usage" in delta:
            tokens = delta["usage"]["tokens"]
            parsed.count(prompt=tokens["input_tokens"], output=tokens["output_tokens"])


PARSERS: Mapping[str, Callable[[ParsedStream, dict[str, Any]], None]] = {
    "openai-chat": parse_chat,
    "openai-responses": parse_responses,
    "anthropic": parse_anthropic,
    "gemini": parse_gemini,
    "cohere": parse_cohere,
}


@dataclass(frozen=True, kw_only=True)
class ReadResponse:
    """A response as bytes, and what it says."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    parsed: ParsedStream


def reply_to(
    dialect: str, model: str, *, accept: str = "identity", service: Service | None = None, **more: Any
) -> Reply:
    path, headers, body = request_in(dialect, model, **more)
    where, _, query = path.partition("?")
    request = Request(
        method="POST",
        path=where,
        query={"alt": "sse"} if query else {},
        headers=headers | {"accept-encoding": accept},
        body=body,
    )
    return (service or Service(WORLD)).answer(request, ARRIVAL)


def response_to(dialect: str, model: str, **more: Any) -> ReadResponse:
    return read(dialect, reply_to(dialect, model, **more))


def read(dialect: str, reply: Reply) -> ReadResponse:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    # An empty write would tell h11 that the connection has ended; the beginning of a head tells it nothing.
    client.receive_data(b"".join(frame.data for frame in reply.timeline.frames) or b"H")
    status, headers, body, complete = 0, {}, b"", False
    while not complete and (event := client.next_event()) is not h11.NEED_DATA:
        if isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
        complete = isinstance(event, h11.EndOfMessage)
    if headers.get("content-encoding") == "gzip":
        body = zlib.decompressobj(31).decompress(body)
    return ReadResponse(
        status=status, headers=headers, body=body, complete=complete, parsed=parsed_stream(dialect, body)
    )


def parsed_stream(dialect: str, body: bytes) -> ParsedStream:
    parsed = ParsedStream()
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if not line.startswith(b"data: ") or line in (b"data: ", b"data: [DONE]"):
            continue
        try:
            message = json.loads(line[6:])
        except ValueError:
            parsed.garbage += 1
        else:
            PARSERS[dialect](parsed, message)
    return parsed


def tokens(reply: Reply, channel: Channel | None = None) -> int:
    return sum(
        count for frame in reply.timeline.frames for where, count in frame.token_counts if channel in (None, where)
    )
