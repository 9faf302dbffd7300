"""Faults: failures and unusual but valid behaviour of providers, each with its script transform.

A client must count responses with `fine` faults as successes, and all others as failures. Every fault works in every
dialect, in the format of that dialect. For requests without `stream`, error responses, pages and delays stay the same;
a fault that ends a stream early sends half of the body; faults in the format of a stream have no effect.
"""

from dataclasses import dataclass

from isochrone_sim.exchange.script import Cut, Ending, Kind, Style
from isochrone_sim.faults import transforms
from isochrone_sim.faults.transforms import ScriptTransform
from isochrone_sim.world.world import Model

RETRY_AFTER_US = 2_000_000
# Two bytes that never occur in UTF-8, in the form of `surrogateescape`.
_NOT_UTF8 = " caf\udcff\udcfe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `fine` if a client should still count the response as a success."""

    name: str
    sentence: str
    fine: bool
    transform: ScriptTransform


def fault_models() -> list[Model]:
    """Return a fast, steady model `fault-NAME` per fault: first token after 50 ms, then 40 tokens at 200 per second."""
    return [
        Model(
            id=f"fault-{fault.name}",
            title=fault.sentence,
            provider="faults",
            ttft_us=50_000,
            tokens_per_second=200.0,
            answer_tokens=40,
            steady=True,
            fault=fault.name,
        )
        for fault in FAULTS.values()
    ]


def _fine(name: str, sentence: str, transform: ScriptTransform) -> Fault:
    return Fault(name=name, sentence=sentence, fine=True, transform=transform)


def _bad(name: str, sentence: str, transform: ScriptTransform) -> Fault:
    return Fault(name=name, sentence=sentence, fine=False, transform=transform)


_TABLE = (
    _fine("none", "A healthy stream, for comparison.", transforms.nothing),
    _bad(
        "401",
        "The key is refused.",
        transforms.error_response(401, "invalid_api_key", "Incorrect API key provided."),
    ),
    _bad(
        "403",
        "The caller's country or account may not use the model.",
        transforms.error_response(
            403, "unsupported_country_region_territory", "Country, region, or territory not supported."
        ),
    ),
    _bad(
        "404",
        "The model does not exist.",
        transforms.error_response(404, "model_not_found", "The model does not exist or you do not have access to it."),
    ),
    _bad(
        "429",
        "The rate limit is reached: retry-after and rate-limit headers.",
        transforms.error_response(
            429, "rate_limit_exceeded", "Rate limit reached: too many requests.", retry_after_us=RETRY_AFTER_US
        ),
    ),
    _bad(
        "500",
        "The server fails.",
        transforms.error_response(500, "server_error", "The server had an error while processing your request."),
    ),
    _bad(
        "503",
        "The server is overloaded.",
        transforms.error_response(503, "overloaded", "The engine is currently overloaded, please try again later."),
    ),
    _bad("html", "Status 200 and a web page, as from a wrong base URL.", transforms.html),
    _bad("silence", "The request is accepted but never answered; the connection stays open.", transforms.silent),
    _bad("headers-only", "The head of a response, then nothing; the connection stays open.", transforms.headers_only),
    _fine("slow-headers", "Nothing at all for 1.5 s, then a healthy stream.", transforms.slow_headers),
    _bad("stall", "Five tokens, then nothing; the connection stays open.", transforms.ending(Ending.HANG)),
    _bad(
        "cut", "Five tokens, then the connection is closed without a terminal chunk.", transforms.ending(Ending.CLOSE)
    ),
    _bad("reset", "Five tokens, then the connection is reset.", transforms.ending(Ending.RESET)),
    _bad(
        "truncated",
        "Five tokens, then the response ends without finish or end marker.",
        transforms.ending(Ending.KEEP_ALIVE),
    ),
    _bad(
        "in-band-error",
        "Five tokens, then an error event under status 200, and [DONE] if any.",
        transforms.error_in_band,
    ),
    _bad(
        "in-band-error-first",
        "An error event in place of the first token, under status 200.",
        transforms.error_in_band_first,
    ),
    _bad(
        "garbage",
        "Five tokens, then broken JSON in a data line, then the rest.",
        transforms.interrupted(Kind.RAW, '{"choices":[{"delta":{"content":'),
    ),
    _bad(
        "invalid-utf8",
        "Five tokens, then a delta with bytes that are not UTF-8, then the rest.",
        transforms.interrupted(Kind.TOKENS, _NOT_UTF8),
    ),
    _bad("huge-line", "Five tokens, then a data line of 10 MB, then the rest.", transforms.huge_line),
    _bad("role-only", "An opening and a finish without tokens.", transforms.role_only),
    _bad("after-end", "A content delta after the end marker.", transforms.after_end),
    _bad(
        "flood",
        "Five tokens, then content as fast as it is read, up to 1 GiB.",
        transforms.flooded(Kind.TOKENS, " and on", tokens=1),
    ),
    _bad(
        "endless-comments",
        "Five tokens, then comments as fast as they are read, up to 1 GiB.",
        transforms.flooded(Kind.COMMENT, "keep-alive"),
    ),
    _fine("crlf", "Lines end in CR LF.", transforms.styled(Style(newline=b"\r\n"))),
    _fine("cr", "Lines end in a lone CR.", transforms.styled(Style(newline=b"\r"))),
    _fine("comments", "Comment lines (: keep-alive) before the first token and after others.", transforms.commented),
    _fine("bundled-first", "The first chunk carries five tokens.", transforms.bundled_first),
    _fine("one-chunk", "The complete answer in one delta.", transforms.one_chunk),
    _fine("null-content", "Null and empty deltas before the first token.", transforms.null_content),
    _fine(
        "split-code-points",
        "Text outside ASCII, every write split inside a character.",
        transforms.split_code_points,
    ),
    _fine(
        "byte-by-byte",
        "Every byte of the first five tokens' events in a separate write.",
        transforms.styled(Style(cut=Cut.BYTES)),
    ),
    _fine("no-usage", "No usage, even when requested.", transforms.no_usage),
    _fine("no-done", "A finish, but no [DONE]; healthy in dialects without [DONE].", transforms.without(Kind.DONE)),
    _fine(
        "usage-in-choice",
        "Usage with the finish reason, requested or not; no [DONE].",
        transforms.usage_in_choice,
    ),
    _fine("absurd-usage", "Usage counts -1 prompt tokens and 10^12 output tokens.", transforms.absurd_usage),
    _fine("reasoning", "The first quarter of the tokens is reasoning.", transforms.reasoning),
    _fine("tool-call", "A tool call, with arguments in pieces (from Gemini at once).", transforms.tool_call),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _TABLE}
