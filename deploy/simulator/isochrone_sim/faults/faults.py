"""How a provider goes wrong, or is odd within its rights: a table of names, each with what it does to a script.

Fine faults are habits of real servers that a good client takes for a success; the others must not count as one.
Each happens in every dialect, in the dialect's own words. A request without `stream` meets them in its own way: error
responses, pages and slowness as they are; what ends a stream early cuts its body in half; what concerns the form of a
stream does nothing.
"""

from dataclasses import dataclass

from isochrone_sim.exchange.script import Cut, Ending, Kind, Style
from isochrone_sim.faults import distortions as to
from isochrone_sim.faults.distortions import Distortion
from isochrone_sim.world.world import Model

RETRY_AFTER_US = 2_000_000
# Two bytes that UTF-8 never contains, as `surrogateescape` spells them in text.
_NOT_UTF8 = " caf\udcff\udcfe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to go wrong, or to be odd. `fine` when a client should see a success all the same."""

    name: str
    sentence: str
    fine: bool
    reshape: Distortion


def fault_models() -> list[Model]:
    """A quick, steady model `fault-NAME` for every fault: first token after 50 ms, then 40 tokens at 200 per second."""
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


def _fine(name: str, sentence: str, reshape: Distortion) -> Fault:
    return Fault(name=name, sentence=sentence, fine=True, reshape=reshape)


def _bad(name: str, sentence: str, reshape: Distortion) -> Fault:
    return Fault(name=name, sentence=sentence, fine=False, reshape=reshape)


_TABLE = (
    _fine("none", "A healthy stream: the control.", to.nothing),
    _bad(
        "401",
        "The key is refused.",
        to.refusing(401, "invalid_api_key", "Incorrect API key provided."),
    ),
    _bad(
        "403",
        "The caller's country or account may not use the model.",
        to.refusing(403, "unsupported_country_region_territory", "Country, region, or territory not supported."),
    ),
    _bad(
        "404",
        "The model does not exist.",
        to.refusing(404, "model_not_found", "The model does not exist or you do not have access to it."),
    ),
    _bad(
        "429",
        "The rate limit is reached: retry-after and rate-limit headers.",
        to.refusing(
            429, "rate_limit_exceeded", "Rate limit reached: too many requests.", retry_after_us=RETRY_AFTER_US
        ),
    ),
    _bad(
        "500",
        "The server fails.",
        to.refusing(500, "server_error", "The server had an error while processing your request."),
    ),
    _bad(
        "503",
        "The server is overloaded.",
        to.refusing(503, "overloaded", "The engine is currently overloaded, please try again later."),
    ),
    _bad("html", "Status 200 and a web page, as from a wrong base URL.", to.html),
    _bad("silence", "The request is taken and never answered; the connection stays open.", to.silent),
    _bad("headers-only", "The head of a response, then nothing; the connection stays open.", to.headers_only),
    _fine("slow-headers", "Nothing at all for 1.5 s, then a healthy stream.", to.slow_headers),
    _bad("stall", "Five tokens, then nothing; the connection stays open.", to.ending(Ending.HANG)),
    _bad("cut", "Five tokens, then the connection is closed without a terminal chunk.", to.ending(Ending.CLOSE)),
    _bad("reset", "Five tokens, then the connection is reset.", to.ending(Ending.RESET)),
    _bad(
        "truncated",
        "Five tokens, then the response ends without finish or end marker.",
        to.ending(Ending.KEEP_ALIVE),
    ),
    _bad(
        "in-band-error",
        "Five tokens, then an error event under status 200, and [DONE] if any.",
        to.error_in_band,
    ),
    _bad(
        "in-band-error-first", "An error event in place of the first token, under status 200.", to.error_in_band_first
    ),
    _bad(
        "garbage",
        "Five tokens, then broken JSON in a data line, then the rest.",
        to.interrupted(Kind.RAW, '{"choices":[{"delta":{"content":'),
    ),
    _bad(
        "invalid-utf8",
        "Five tokens, then a delta with bytes that are not UTF-8, then the rest.",
        to.interrupted(Kind.TOKENS, _NOT_UTF8),
    ),
    _bad("huge-line", "Five tokens, then a data line of 10 MB, then the rest.", to.huge_line),
    _bad("role-only", "An opening and a finish, without a single token.", to.role_only),
    _bad("after-end", "A content delta behind the end: a stream that goes on when over.", to.after_end),
    _bad(
        "flood",
        "Five tokens, then content as fast as it is read, up to 1 GiB.",
        to.flooded(Kind.TOKENS, " and on", tokens=1),
    ),
    _bad(
        "endless-comments",
        "Five tokens, then comments as fast as they are read, up to 1 GiB.",
        to.flooded(Kind.COMMENT, "keep-alive"),
    ),
    _fine("crlf", "Lines end in CR LF.", to.styled(Style(newline=b"\r\n"))),
    _fine("cr", "Lines end in a lone CR.", to.styled(Style(newline=b"\r"))),
    _fine("comments", "Comment lines (: keep-alive) before the first token and after others.", to.commented),
    _fine("bundled-first", "The first chunk carries five tokens.", to.bundled_first),
    _fine("one-chunk", "The whole answer comes in one delta.", to.one_chunk),
    _fine("null-content", "Null and empty deltas before the first token.", to.null_content),
    _fine(
        "split-code-points",
        "Text outside ASCII, every write cut inside a character.",
        to.split_code_points,
    ),
    _fine(
        "byte-by-byte",
        "Every byte of the first five tokens' events in a write of its own.",
        to.styled(Style(cut=Cut.BYTES)),
    ),
    _fine("no-usage", "Usage never comes, even when asked for.", to.no_usage),
    _fine("no-done", "A finish, but no [DONE]; simply healthy where an API has none.", to.without(Kind.DONE)),
    _fine("usage-in-choice", "Usage beside the finish reason, asked for or not; no [DONE].", to.usage_in_choice),
    _fine("absurd-usage", "Usage counts -1 prompt tokens and 10^12 output tokens.", to.absurd_usage),
    _fine("reasoning", "The first quarter of the tokens is reasoning aloud.", to.reasoning),
    _fine("tool-call", "A tool call, with arguments in pieces (from Gemini at once).", to.tool_call),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _TABLE}
