"""The contract of all dialects: whichever API a client speaks, every fault does what the table promises."""

import json
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from fixtures.simulator import request_in
from isochrone_sim.dialects import DIALECTS
from isochrone_sim.faults import FAULTS
from isochrone_sim.requests import Request
from isochrone_sim.script import Channel, Ending
from isochrone_sim.server.service import Service
from isochrone_sim.world import default_world
from unit.sim.stream_reader import (
    ARRIVAL,
    PARSERS,
    WORLD,
    ParsedStream,
    parsed_stream,
    read,
    reply_to,
    response_to,
    tokens,
)

NEWLINES = {"crlf": b"\r\n", "cr": b"\r"}
REFUSALS = ("401", "403", "404", "429", "500", "503")
NO_STREAM = (*REFUSALS, "html", "silence")
CUT_SHORT = ("stall", "cut", "reset", "truncated", "in-band-error", "flood", "endless-comments")
ENDINGS = {
    "silence": Ending.HANG,
    "headers-only": Ending.HANG,
    "stall": Ending.HANG,
    "cut": Ending.CLOSE,
    "reset": Ending.RESET,
    "flood": Ending.CLOSE,
    "endless-comments": Ending.CLOSE,
}
OTHER_PIECES = ("bundled-first", "one-chunk", "role-only", "tool-call")
UNFINISHED = (*NO_STREAM, *CUT_SHORT, "headers-only", "in-band-error-first")
every_dialect = pytest.mark.parametrize("dialect", list(PARSERS))


def test_every_dialect_is_listened_to() -> None:
    """No dialect is served that this contract does not cover."""
    assert set(DIALECTS) == set(PARSERS)


@every_dialect
@pytest.mark.parametrize("fault", list(FAULTS))
def test_the_stream_is_what_the_table_promises(dialect: str, fault: str) -> None:
    """How many tokens come, whether there is an end, and what becomes of the connection, for each pair."""
    reply = reply_to(dialect, f"fault-{fault}")
    answer = read(dialect, reply)
    expected = 5 if fault in CUT_SHORT else 0 if fault in UNFINISHED or fault == "role-only" else 40
    assert tokens(reply) == expected
    assert bool(answer.parsed.finished) == (fault not in UNFINISHED)
    assert reply.timeline.ending is ENDINGS.get(fault, Ending.KEEP_ALIVE)
    assert answer.complete == (fault not in ENDINGS)
    assert bool(answer.parsed.errors) == fault.startswith("in-band-error")
    assert (answer.parsed.garbage > 0) == (fault in ("garbage", "invalid-utf8"))
    assert (answer.parsed.after_the_end > 0) == (fault == "after-end")
    assert (reply.timeline.flood is not None) == (fault in ("flood", "endless-comments"))


@every_dialect
@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {*UNFINISHED, *OTHER_PIECES}))
def test_a_token_is_a_piece_of_its_own(dialect: str, fault: str) -> None:
    """Forty pieces of text, beside which only what does not parse may stand."""
    assert len(response_to(dialect, f"fault-{fault}").parsed.pieces) == 40


@every_dialect
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", REFUSALS)
def test_refusals_have_the_dialects_shape(dialect: str, fault: str, stream: bool) -> None:  # noqa: FBT001  # a case
    """An error response carries its status, a sentence where the dialect has it, and the request's id."""
    answer = response_to(dialect, f"fault-{fault}", stream=stream)
    told = json.loads(answer.body)
    shapes: dict[str, Callable[[], object]] = {
        "openai-chat": lambda: told["error"]["message"],
        "openai-responses": lambda: told["error"]["message"],
        "anthropic": lambda: told["type"] == "error" and told["error"]["type"] and told["error"]["message"],
        "gemini": lambda: told["error"]["code"] == int(fault) and told["error"]["status"] and told["error"]["message"],
        "cohere": lambda: told["id"] and told["message"],
    }
    assert (answer.status, bool(shapes[dialect]())) == (int(fault), True)
    assert "req_1" in (answer.headers.get("x-request-id"), answer.headers.get("request-id"))
    assert ("retry-after" in answer.headers) == (fault == "429" and dialect != "gemini")


@pytest.mark.parametrize(
    ("dialect", "name", "value"),
    [
        ("openai-chat", "x-ratelimit-remaining-requests", "0"),
        ("openai-responses", "x-ratelimit-reset-requests", "2s"),
        ("anthropic", "anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic", "anthropic-ratelimit-requests-reset", "2026-05-20T00:00:02Z"),
        ("cohere", "x-trial-endpoint-call-remaining", "0"),
        ("cohere", "retry-after", "2"),
    ],
)
def test_429_says_when_to_come_back(dialect: str, name: str, value: str) -> None:
    """A throttled request is told in the provider's own headers."""
    assert response_to(dialect, "fault-429").headers[name] == value


def test_gemini_says_in_the_body_when_to_come_back() -> None:
    """Google's way is a `RetryInfo` among the details, and no header."""
    (detail,) = json.loads(response_to("gemini", "fault-429").body)["error"]["details"]
    assert detail["retryDelay"] == "2s"


@every_dialect
def test_usage_is_in_the_dialects_fields(dialect: str) -> None:
    """Healthy counts are the truth; absurd ones are absurd; without usage there is none anywhere in the stream."""
    healthy = response_to(dialect, "fault-none").parsed.counts
    assert (healthy["prompt"], healthy["output"]) == (12, 40)
    absurd = response_to(dialect, "fault-absurd-usage").parsed.counts
    assert (absurd["prompt"], absurd["output"]) == (-1, 10**12)
    assert response_to(dialect, "fault-no-usage").parsed.counts == {}
    assert response_to(dialect, "fault-usage-in-choice").parsed.counts["output"] == 40


@every_dialect
def test_an_empty_answer_counts_nothing(dialect: str) -> None:
    """Role-only counts nothing, in the fields in which others count."""
    parsed = response_to(dialect, "fault-role-only").parsed
    assert (parsed.pieces, parsed.counts["output"]) == ([], 0)


@every_dialect
def test_empty_preludes_come_before_the_first_token(dialect: str) -> None:
    """More empty events than a healthy stream has, none of which completes a token."""
    healthy, void = response_to(dialect, "fault-none").parsed, response_to(dialect, "fault-null-content")
    assert void.parsed.empty > healthy.empty
    assert void.parsed.pieces[0][1].strip()
    frames = reply_to(dialect, "fault-null-content").timeline.frames
    assert not any(frame.token_counts for frame in frames[:3])


@every_dialect
def test_reasoning_has_a_channel(dialect: str) -> None:
    """A quarter of the tokens comes first, in the dialect's own field for thoughts."""
    reply = reply_to(dialect, "fault-reasoning")
    channels = [channel for channel, _ in read(dialect, reply).parsed.pieces]
    assert channels == [Channel.REASONING] * 10 + [Channel.ANSWER] * 30
    assert (tokens(reply, Channel.REASONING), tokens(reply, Channel.ANSWER)) == (10, 30)
    assert read(dialect, reply).parsed.counts.get("reasoning", 10) == 10


@every_dialect
def test_a_tool_call_is_json(dialect: str) -> None:
    """The arguments join to an object; all dialects but Gemini's send them in pieces."""
    reply = reply_to(dialect, "fault-tool-call")
    parsed = read(dialect, reply).parsed
    assert set(json.loads(parsed.text(Channel.TOOL))) == {"query"}
    assert len(parsed.pieces) == (1 if dialect == "gemini" else 39)
    assert tokens(reply, Channel.TOOL) == 40


@every_dialect
@pytest.mark.parametrize("fault", list(NEWLINES))
def test_lines_end_as_the_fault_wants(dialect: str, fault: str) -> None:
    """The fault's line end and no other."""
    body, newline = response_to(dialect, f"fault-{fault}").body, NEWLINES[fault]
    assert body.endswith(newline * 2)
    assert not set(body.replace(newline, b"")) & set(b"\r\n")


@every_dialect
def test_lines_end_as_the_dialect_does(dialect: str) -> None:
    """Without a fault Google's lines end in CR LF, all others in LF."""
    assert (b"\r\n" in response_to(dialect, "fault-none").body) == (dialect == "gemini")


@every_dialect
def test_comments_stand_between_events(dialect: str) -> None:
    """A comment before the first token, and more later."""
    frames = reply_to(dialect, "fault-comments").timeline.frames
    first = next(number for number, frame in enumerate(frames) if frame.token_counts)
    before, after = (b"".join(frame.data for frame in part) for part in (frames[:first], frames[first:]))
    assert before.count(b": keep-alive") >= 1
    assert after.count(b": keep-alive") > 5


@every_dialect
@pytest.mark.parametrize("fault", ["flood", "endless-comments"])
def test_a_flood_is_a_good_chunk(dialect: str, fault: str) -> None:
    """What is repeated is one HTTP chunk of whole events: tokens of the answer, or nothing but comments."""
    flood = reply_to(dialect, f"fault-{fault}", accept="gzip").timeline.flood
    assert flood is not None
    size, _, rest = flood.data.partition(b"\r\n")
    block = rest[: int(size, 16)]
    assert (rest[len(block) :], len(block) >= 1 << 16) == (b"\r\n", True)
    parsed = parsed_stream(dialect, block)
    assert (
        [(Channel.ANSWER, len(parsed.pieces))] == [*flood.token_counts]
        if fault == "flood"
        else parsed == ParsedStream()
    )


@every_dialect
def test_any_model_answers_in_any_dialect(dialect: str) -> None:
    """Every model of the published world can be reply_to, at its own time to first token."""
    for name, model in default_world().models.items():
        reply = reply_to(dialect, name, limit=3)
        assert (reply.dialect, reply.model, reply.timeline.status, tokens(reply)) == (dialect, name, 200, 3)
        assert reply.timeline.ttft_us == pytest.approx(model.ttft_us, rel=0.2)


@every_dialect
@pytest.mark.parametrize("effort", [None, "low"])
def test_reasoning_models_think_aloud_when_asked(dialect: str, effort: str | None) -> None:
    """Reasoning comes when effort is reply_to of a model that can, and never else."""
    parsed = response_to(dialect, reasoner(), effort=effort).parsed
    assert bool(parsed.text(Channel.REASONING)) == (effort is not None)
    assert parsed.text(Channel.ANSWER)


def reasoner() -> str:
    return next(name for name, model in WORLD.models.items() if model.reasoning)


@pytest.mark.parametrize("dialect", ["openai-responses", "gemini"])
def test_silent_reasoning_is_counted_and_not_told(dialect: str) -> None:
    """Where thoughts have to be reply_to for apart from thinking, they come late, in silence and in usage."""
    reply = reply_to(dialect, reasoner(), effort="low", send_reasoning=False)
    parsed = read(dialect, reply).parsed
    assert (parsed.text(Channel.REASONING), parsed.counts["reasoning"] > 0) == ("", True)
    first = next(frame for frame in reply.timeline.frames if frame.token_counts)
    assert dict(first.token_counts)[Channel.REASONING] == parsed.counts["reasoning"]


@every_dialect
def test_a_limit_is_an_end(dialect: str) -> None:
    """An answer cut at its limit says so."""
    words = {"openai-chat": "length", "openai-responses": "incomplete", "anthropic": "message_stop"}
    words |= {"gemini": "MAX_TOKENS", "cohere": "MAX_TOKENS"}
    assert response_to(dialect, "fault-none", limit=3).parsed.finished == [words[dialect]]


@every_dialect
@pytest.mark.parametrize("fault", ["none", "reasoning", "tool-call", "no-usage"])
def test_an_answer_without_stream(dialect: str, fault: str) -> None:
    """The same words in one JSON object, all at once."""
    whole = response_to(dialect, f"fault-{fault}", stream=False)
    assert (whole.status, whole.headers["content-type"]) == (200, "application/json")
    told = json.loads(whole.body)
    assert ("usage" in told or "usageMetadata" in told) == (fault != "no-usage")
    assert ("look_up" in json.dumps(told)) == (fault == "tool-call")


@every_dialect
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"{}", b'{"model":"m","messages":[4],"max_tokens":-1}']
)
def test_nonsense_is_refused(dialect: str, body: bytes) -> None:
    """Whatever the body holds, the answer is a 4xx in the dialect's shape."""
    path, headers, _ = request_in(dialect, "fault-none")
    where, _, query = path.partition("?")
    request = Request(method="POST", path=where, query={"alt": "sse"} if query else {}, headers=headers, body=body)
    assert Service(WORLD).answer(request, ARRIVAL).timeline.status == 400


@every_dialect
@pytest.mark.parametrize(("key", "status"), [("right", 200), ("wrong-key-0123456789", 401), (None, 401)])
def test_the_key_is_where_the_dialect_has_it(dialect: str, key: str | None, status: int) -> None:
    """With the right key in the dialect's header there is an answer, else 401."""
    service = Service(WORLD, api_key="right")
    assert reply_to(dialect, "fault-none", key=key, service=service).timeline.status == status


@every_dialect
def test_each_event_can_be_read_under_gzip(dialect: str) -> None:
    """What was written up to a token decompresses to that token's event, and the whole to the plain stream."""
    plain, packed = response_to(dialect, "fault-none"), response_to(dialect, "fault-none", accept="gzip, br")
    assert (plain.headers.get("content-encoding"), packed.headers["content-encoding"]) == (None, "gzip")
    assert plain.body == packed.body
    frames = reply_to(dialect, "fault-none", accept="gzip").timeline.frames
    inflate = zlib.decompressobj(31)
    inflate.decompress(dechunked(frames[0].data.partition(b"\r\n\r\n")[2]))
    for frame in frames[1:41]:
        assert inflate.decompress(dechunked(frame.data)).replace(b"\r", b"").endswith(b"\n\n")


def dechunked(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body, data = body + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return body


@pytest.mark.parametrize(
    ("accept", "packed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False), ("identity", False), ("", False), ("*", False)],
)
def test_gzip_has_to_be_named(accept: str, packed: bool) -> None:  # noqa: FBT001  # a case
    """Compression is for those who ask for it by name."""
    assert ("content-encoding" in response_to("openai-chat", "fault-none", accept=accept).headers) == packed


def test_anthropic_wants_a_version() -> None:
    """A request without `anthropic-version`, or to Gemini without `alt=sse`, is refused and says why."""
    path, headers, body = request_in("anthropic", "fault-none")
    unversioned = {name: value for name, value in headers.items() if name != "anthropic-version"}
    request = Request(method="POST", path=path, headers=unversioned, body=body)
    assert Service(WORLD).answer(request, ARRIVAL).timeline.status == 400
    path, headers, body = request_in("gemini", "fault-none")
    request = Request(method="POST", path=path.partition("?")[0], headers=headers, body=body)
    reply = Service(WORLD).answer(request, ARRIVAL)
    assert (reply.timeline.status, b"alt=sse" in reply.timeline.frames[0].data) == (400, True)


def test_anthropic_blocks_open_and_close_in_order() -> None:
    """Thinking is signed and closed before the text opens; indices count up."""
    body = response_to("anthropic", "fault-reasoning").body
    messages = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]
    blocks = [m for m in messages if m["type"] in ("content_block_start", "content_block_stop")]
    assert [(m["type"].rpartition("_")[2], m["index"]) for m in blocks] == [
        ("start", 0),
        ("stop", 0),
        ("start", 1),
        ("stop", 1),
    ]
    deltas = [m["delta"]["type"] for m in messages if m["type"] == "content_block_delta" and m["index"] == 0]
    assert deltas[-1] == "signature_delta"


def test_responses_count_their_events() -> None:
    """Sequence numbers and usage count up, and the completed response holds the whole text."""
    answer = response_to("openai-responses", "fault-none")
    messages = [json.loads(line[6:]) for line in answer.body.split(b"\n") if line.startswith(b"data: ")]
    assert [m["sequence_number"] for m in messages] == list(range(len(messages)))
    (item,) = messages[-1]["response"]["output"]
    assert item["content"][0]["text"] == answer.parsed.text(Channel.ANSWER)
    body = response_to("gemini", "fault-reasoning").body
    usages = [json.loads(line[6:])["usageMetadata"] for line in body.split(b"\r\n") if line.startswith(b"data: ")]
    totals = [usage["totalTokenCount"] for usage in usages]
    assert (totals[0], totals[-1], totals == sorted(totals)) == (13, 52, True)
    assert (usages[4]["thoughtsTokenCount"], usages[-1]["thoughtsTokenCount"]) == (5, 10)


def test_limits_hold_in_any_dialect_together() -> None:
    """One rate_limit per model, whichever API it is reply_to through."""
    scarce = replace(WORLD.models["fault-none"], requests_per_minute=len(PARSERS))
    service = Service(WORLD.with_models([scarce]))
    assert {reply_to(name, "fault-none", service=service).timeline.status for name in PARSERS} == {200}
    assert {reply_to(name, "fault-none", service=service).timeline.status for name in PARSERS} == {429}
