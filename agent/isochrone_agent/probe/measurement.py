"""The measurement of one probe: it records signals and produces a Sample.

The laws:

1. Every signal is legal in every state. After a final terminal marker only usage counts: nothing that arrives after a
   complete answer changes it. A finish reason before the first content ends nothing. Content after a later one shows
   that the server sends one with every chunk, so an error may still follow. `[DONE]` alone, after a frame that is not
   understood, says no success.
2. Times are arguments, in nanoseconds of one monotonic clock. A time earlier than its predecessor is raised to it, so
   intervals are never negative.
3. `sample()` is total: it may be called at any time, and the outcome follows from the progress of the stream.
4. The first token is the first non-empty piece of reasoning, answer or tool text; nothing else ends the TTFT.
5. A chunk is not a token. Token counts come from the provider, or are an estimate labelled as such.
6. Speed is (tokens - tokens of the first chunk) / (last chunk - first chunk). If chunks arrive in groups of several
   tokens, the groups take the place of the chunks, and the last one is left out (`_timed`). Speed is undefined, and the
   sample flagged `buffered`, if there are too few arrivals, or too fast ones for the timestamps (`speed_is_defined`).
7. If reasoning is only summarised, its tokens are in no chunk: speed is the tokens of the answer over the chunks of the
   answer, and undefined if the provider does not count the reasoning separately.

Not proud of: if the provider does not report the tokens of the first chunk (usage with every chunk does), they are
estimated from its share of the characters. With one token per chunk, the common case, that is exact.
"""

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from isochrone_common.dialects.signals import (
    DONE,
    HEAD_CHARS,
    REASONING_ENDS,
    Answer,
    Failed,
    Finished,
    Opened,
    Reasoning,
    Sent,
    Signal,
    Unknown,
    Usage,
)
from isochrone_wire.model import Outcome, Price, Quality, RateLimit, Sample, TokenSource

ERROR_CHARS = 200
ONLY_HIDDEN_REASONING = "all output tokens were used by hidden reasoning, and none by the answer"
CHARS_PER_TOKEN = 4
WHOLE_CHARS_PER_TOKEN = 2.5
MIN_ARRIVALS_FOR_SPEED = 3
MIN_RESOLUTIONS_FOR_SPEED = 20
FASTEST_TOKEN_NS = 50_000
SHORT_SPAN_NS = 50_000_000
MAX_CHUNKS_PER_ARRIVAL = 8
ARRIVAL_GAP_NS = 1_000_000
MIN_GROUPS_FOR_SPEED = 5
# With more tokens per arrival on average, arrivals have several; one token may be an end mark without a chunk.
GROUPED_TOKENS = 1.25
# The kernel's timestamps are exact to microseconds, but network cards deliver segments in groups.
KERNEL_RESOLUTION_NS = 250_000
USER_RESOLUTION_NS = 1_000_000
STALL_FLOOR_NS = 1_000_000_000
STALL_FACTOR = 10
_NO_CONNECTION: Mapping[str, Any] = MappingProxyType({})


class ReasoningVisibility(Enum):
    """Visibility of the reasoning in the stream: not visible (or absent), streamed in full, or summarised."""

    HIDDEN = "hidden"
    VISIBLE = "visible"
    SUMMARISED = "summarised"


@dataclass(slots=True)
class ChunkSeries:
    """The chunks of one kind: times in ns, and characters.

    Chunks that were released together may arrive in several reads. So those at most 1 ms apart, and a quarter of the
    mean gap, are one arrival.
    """

    at_ns: "array[int]" = field(default_factory=lambda: array("q"))
    chars_each: "array[int]" = field(default_factory=lambda: array("q"))
    chars: int = 0

    def add(self, chars: int, at_ns: int) -> None:
        """Add a chunk, not earlier than the one before."""
        self.at_ns.append(at_ns)
        self.chars_each.append(chars)
        self.chars += chars

    @property
    def span_ns(self) -> int:
        """The time from the first to the last chunk, 0 without chunks."""
        return self.at_ns[-1] - self.at_ns[0] if self.at_ns else 0

    @property
    def ends(self) -> list[int]:
        """The number of chunks until the end of each arrival."""
        count = len(self.at_ns)
        apart_ns = min(ARRIVAL_GAP_NS, self.span_ns / (4 * max(count - 1, 1)))
        gaps = enumerate(pairwise(self.at_ns), start=1)
        return [*(nth for nth, (before, after) in gaps if after - before > apart_ns), *((count,) if count else ())]

    @property
    def arrivals(self) -> int:
        """The number of arrivals."""
        return len(self.ends)

    def tokens_in(self, chunks: slice, *, streamed: int) -> float:
        """Return how many of the `streamed` tokens some chunks have: one each, if there are as many chunks, or else by
        their share of the characters.
        """
        if streamed == len(self.at_ns):
            return len(self.at_ns[chunks])
        return streamed * sum(self.chars_each[chunks]) / max(self.chars, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The token counts of one stream. `output` is the provider's count or, with `source` ESTIMATED, an estimate.
    `streamed` is the part of it in the chunks used for the speed (hidden reasoning is not in any chunk), `None` if
    unknown; `first_chunk` is the part of `streamed` in the first of these chunks, and in others that arrived with it.
    """

    output: int | None = None
    streamed: int | None = None
    first_chunk: int | None = None
    source: TokenSource | None = None


def count_tokens(
    usage: Usage,
    *,
    content: ChunkSeries,
    speed_chunks: ChunkSeries,
    visibility: ReasoningVisibility,
    first_chunk_tokens: int | None = None,
) -> Tokens:
    """Count from usage if the provider sent it, else estimate one token per four characters of `content`. The provider
    may state `first_chunk_tokens`, its count up to and including the first of `speed_chunks`.
    """
    # Gateways send 0 beside a text as a placeholder.
    if usage.output_tokens is not None and (usage.output_tokens or not content.at_ns):
        output, streamed, source = usage.output_tokens, _streamed(usage, visibility), TokenSource.USAGE
    elif content.at_ns:
        output, streamed = (math.ceil(series.chars / CHARS_PER_TOKEN) for series in (content, speed_chunks))
        source = TokenSource.ESTIMATED
    else:
        return Tokens()
    first_chunk = _first_chunk(streamed, speed_chunks, first_chunk_tokens)
    return Tokens(output=output, streamed=streamed, first_chunk=first_chunk, source=source)


def _streamed(usage: Usage, visibility: ReasoningVisibility) -> int | None:
    """Return how many of the provider's output tokens are in the chunks used for the speed; `None` if unknown."""
    output, reasoning = usage.output_tokens or 0, usage.reasoning_tokens or 0
    if visibility is ReasoningVisibility.VISIBLE:
        return output
    if visibility is ReasoningVisibility.SUMMARISED and not reasoning:
        # There was reasoning, but its share of the output is unknown.
        return None
    return max(0, output - reasoning)


def _first_chunk(streamed: int | None, speed_chunks: ChunkSeries, stated: int | None) -> int | None:
    chunks = len(speed_chunks.at_ns)
    if streamed is None or not chunks:
        return None
    first = speed_chunks.ends[0]
    share = max(1, round(speed_chunks.tokens_in(slice(first), streamed=streamed)))
    return min(stated if stated and first == 1 < chunks else share, streamed)


def _timed(chunks: ChunkSeries, tokens: Tokens) -> tuple[float, int]:
    """Return the tokens after the first arrival, and the time in ns in which they arrived. If arrivals have several
    tokens, the last one is left out: what a timer releases at the end waited for it with fewer tokens than the others.
    """
    streamed, ends = tokens.streamed or 0, chunks.ends
    is_grouped = streamed - 1 > GROUPED_TOKENS * len(ends)
    if len(ends) < (MIN_GROUPS_FOR_SPEED if is_grouped else MIN_ARRIVALS_FOR_SPEED):
        return 0, 0
    first, last = ends[0], ends[-2 if is_grouped else -1]
    left_out = chunks.tokens_in(slice(last, None), streamed=streamed)
    return streamed - (tokens.first_chunk or 0) - left_out, chunks.at_ns[last - 1] - chunks.at_ns[first - 1]


def speed_is_defined(chunks: ChunkSeries, tokens: Tokens, *, resolution_ns: int) -> bool:
    """Return true if the chunks arrived as they were generated, and their times are exact enough.

    A fixed minimum of the duration would exclude the short answers of fast models, and make these look slower than they
    are. The laws:

    1. There are at least three arrivals, five if they have several tokens each: of fewer a large part is left out, and
       where the timer begins decides. What arrived with the first chunk counts as part of it.
    2. The time from the first arrival to the last that counts is at least 20 times the resolution of the timestamps, so
       that the error of a speed is a few per cent, and the bias of 1/time some tenths of a per cent.
    3. It is at least 50 us per token after the first arrival: no model generates 20 000 tokens per second, but a proxy
       that buffers releases more.
    4. Within less than 50 ms, there are at most eight chunks per arrival. A buffered answer arrives in a few large
       pieces, a round trip apart.
    """
    rest, span_ns = _timed(chunks, tokens)
    long_enough = span_ns >= max(MIN_RESOLUTIONS_FOR_SPEED * resolution_ns, rest * FASTEST_TOKEN_NS)
    crowded = chunks.span_ns < SHORT_SPAN_NS and len(chunks.at_ns) > MAX_CHUNKS_PER_ARRIVAL * chunks.arrivals
    return long_enough and not crowded


def tokens_per_second(chunks: ChunkSeries, tokens: Tokens, *, resolution_ns: int) -> float | None:
    """The output speed as Artificial Analysis defines it, after the first chunk; `None` if undefined."""
    if tokens.streamed is None or tokens.first_chunk is None:
        return None
    rest, span_ns = _timed(chunks, tokens)
    is_defined = rest > 0 and speed_is_defined(chunks, tokens, resolution_ns=resolution_ns)
    return rest / (span_ns / 1e9) if is_defined else None


def time_resolution_ns(*, kernel: bool, loop_lag_us: int | None) -> int:
    """Return the resolution of the times of chunks: without timestamps of the kernel, that of the event loop."""
    return KERNEL_RESOLUTION_NS if kernel else max(USER_RESOLUTION_NS, (loop_lag_us or 0) * 1000)


def chunk_gaps(chunk_ns: Sequence[int]) -> dict[str, Any]:
    """Return the fields of `Sample` on gaps between chunks. A stall is a gap > max(1 s, 10 x median)."""
    ordered = sorted(after - before for before, after in pairwise(chunk_ns))
    if not ordered:
        return {}
    p50_ns, p99_ns = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    return {
        "chunk_gap_p50_us": p50_ns // 1000,
        "chunk_gap_p99_us": p99_ns // 1000,
        "chunk_gap_max_us": ordered[-1] // 1000,
        "stalls": sum(gap > max(STALL_FLOOR_NS, STALL_FACTOR * p50_ns) for gap in ordered),
    }


# Content that begins with such a mark has its reasoning inside: when the answer proper begins is not known.
_REASONING_MARK = re.compile(
    r"\s*([<\[\u25c1]\|?(seed:|start_|begin_of_)?(think|thought|reason|reflect|analysis|scratchpad|internal|inner_)"
    r"|<\|(channel|start)\|>)",
    re.IGNORECASE,
)


class Measurement:
    """Records the signals of one probe, each with its time in monotonic nanoseconds."""

    def __init__(self) -> None:
        self.opened: Opened | None = None
        self.failed: Failed | None = None
        self.finished = False
        self.is_final = False
        self.reason = ""
        self.frames_unknown = 0
        self.usage = Usage()
        self.sent_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.content = ChunkSeries()
        self.answer = ChunkSeries()
        self.summarised = False
        self.first_answer_tokens: int | None = None
        self._answer_head = ""
        self._answer_tail = ""
        self._ended_reasoning = False
        self._is_contradicted = False
        self._is_unread = False
        self._unread = ""
        self._is_vouched = False
        self._latest_ns = 0

    @property
    def chunk_ns(self) -> Sequence[int]:
        """The times of all chunks that contain text."""
        return self.content.at_ns

    @property
    def ended(self) -> bool:
        """True once the answer is complete or has failed; more may follow."""
        return self.failed is not None or self.is_final or (self.is_complete and bool(self.chunk_ns))

    @property
    def is_complete(self) -> bool:
        """True once nothing more belongs to the answer; a finish reason in every chunk does not say so."""
        return self.finished and (self.is_final or not self._is_contradicted)

    def observe(self, signal: Signal, at_ns: int) -> None:
        """Record `signal`, received with the read at `at_ns`."""
        self._latest_ns = at_ns = max(self._latest_ns, at_ns)
        match signal:
            case Sent():
                self.sent_ns = at_ns
            case Opened():
                self.opened = signal
                self.receive(at_ns)
            case Usage():
                self._add_usage(signal)
            case _ if not self.is_final:
                self._progress(signal, at_ns)

    def _progress(self, signal: Signal, at_ns: int) -> None:
        match signal:
            case Answer(is_whole=is_whole):
                if not (is_whole and self.answer.at_ns):
                    self._add_answer(signal, at_ns)
            case Reasoning(chars, summarised):
                self.summarised = self.summarised or summarised
                if chars:
                    self._add_content(chars, at_ns)
            case Finished(reason, is_final):
                self.finished, self.is_final = True, is_final
                self.reason = reason if not is_final or not self.reason else self.reason
                self._is_vouched = self._is_vouched or signal != DONE
            case Unknown():
                self.frames_unknown += 1
                self._unread = signal.text or self._unread
                self._is_unread = True
            # Some servers state a finish reason before the answer: without a token, nothing is complete.
            case Failed() if not self.finished or self._is_contradicted or not self.chunk_ns:
                # The first failure is the cause, if it has a reason; later ones are its consequences.
                if self.failed is None or (signal.has_reason and not self.failed.has_reason):
                    self.failed = signal

    def _add_answer(self, piece: Answer, at_ns: int) -> None:
        if len(self._answer_head) < HEAD_CHARS:
            self._answer_head += piece.head
        # The mark of an end may be in several pieces.
        seam = self._answer_tail + piece.head
        self._answer_tail = (self._answer_tail + piece.tail)[-HEAD_CHARS:]
        self._ended_reasoning = self._ended_reasoning or piece.ends_reasoning or any(map(seam.count, REASONING_ENDS))
        self.answer.add(piece.chars, at_ns)
        self._add_content(piece.chars, at_ns)

    def _add_content(self, chars: int, at_ns: int) -> None:
        self.finished, self._is_contradicted = self.finished and bool(self.chunk_ns), self.finished
        self._is_unread = False
        self.content.add(chars, at_ns)

    @property
    def reasons_inline(self) -> bool:
        """True if the content has the marker of a reasoning that is part of it."""
        return self._ended_reasoning or _REASONING_MARK.match(self._answer_head) is not None

    def receive(self, at_ns: int) -> None:
        """Record the arrival of the first bytes of the response; later calls have no effect."""
        if self.first_byte_ns is None:
            self.first_byte_ns = at_ns

    def _add_usage(self, usage: Usage) -> None:
        if len(self.answer.at_ns) == 1 and usage.output_tokens is not None:
            self.first_answer_tokens = usage.output_tokens - (usage.reasoning_tokens or 0)
        # A count of 0 is a placeholder of gateways: it replaces none.
        stated = {name: n for name, n in asdict(usage).items() if n or (n == 0 and getattr(self.usage, name) is None)}
        self.usage = replace(self.usage, **stated)

    def sample(
        self,
        *,
        target_id: int,
        round_at: int,
        dispatched_at: int,
        connection: Mapping[str, Any] = _NO_CONNECTION,
        price: Price | None = None,
        quality: Quality = Quality.CLEAN,
    ) -> Sample:
        """Build the sample from what has been recorded so far; times `..._at` are in microseconds since the epoch.

        `connection` are the fields of `Sample` on the connection.
        """
        failure = self.failed or self._implied_failure()
        opened = self.opened or Opened(status=0)
        tokens, speed_chunks = self._tokens()
        is_kernel = Quality.USER_STAMPS not in quality
        resolution_ns = time_resolution_ns(kernel=is_kernel, loop_lag_us=connection.get("loop_lag_us"))
        if self.chunk_ns and not speed_is_defined(speed_chunks, tokens, resolution_ns=resolution_ns):
            quality |= Quality.BUFFERED
        if self.usage.cached_tokens:
            quality |= Quality.CACHED
        if tokens.source is TokenSource.ESTIMATED:
            quality |= Quality.ESTIMATED_TOKENS
        return Sample(
            target_id=target_id,
            round_at=round_at,
            outcome=failure.outcome if failure else Outcome.OK,
            dispatched_at=dispatched_at,
            late_us=dispatched_at - round_at,
            ttfb_us=self._since_sent_us(self.first_byte_ns),
            ttft_us=self._since_sent_us(self.chunk_ns[0] if self.chunk_ns else None),
            ttfat_us=self._since_sent_us(
                self.answer.at_ns[0] if self.answer.at_ns and not self.reasons_inline else None
            ),
            e2e_us=self._since_sent_us(self.chunk_ns[-1] if self.chunk_ns else None),
            # What a failed stream has of its answer is no sample of the speed of answers.
            tokens_per_second=None if failure else tokens_per_second(speed_chunks, tokens, resolution_ns=resolution_ns),
            prompt_tokens=self.usage.prompt_tokens,
            output_tokens=tokens.output,
            reasoning_tokens=self.usage.reasoning_tokens,
            cached_tokens=self.usage.cached_tokens,
            first_chunk_tokens=tokens.first_chunk,
            chunks=len(self.chunk_ns),
            output_chars=self.content.chars,
            frames_unknown=self.frames_unknown,
            token_source=tokens.source,
            provider_us=self.usage.provider_us if opened.provider_us is None else opened.provider_us,
            edge=opened.edge,
            request_id=opened.request_id,
            ratelimit=_ratelimit(opened, failure),
            cost_usd=self._cost_usd(price, tokens),
            quality=quality,
            http_status=opened.status or None,
            error=failure.error[:ERROR_CHARS] if failure else None,
            timeout_us=failure.timeout_us if failure else None,
            **connection,
            **chunk_gaps(self.chunk_ns),
        )

    def _implied_failure(self) -> Failed | None:
        if not self.finished or (self._is_unread and not self._is_vouched):
            text = f": {self._unread}" if self._unread else ""
            if self.frames_unknown and not self.chunk_ns:
                return Failed(outcome=Outcome.GARBLED, error=f"no event of the stream belongs to this dialect{text}")
            unread = f", after a frame that is neither content nor metadata{text}" if self._is_unread else ""
            return Failed(outcome=Outcome.TRUNCATED, error=f"the stream ended without its terminal marker{unread}")
        if not self.chunk_ns:
            hidden = self.summarised or self.usage.reasoning_tokens
            error = ONLY_HIDDEN_REASONING if hidden else "the stream finished without a single token"
            return Failed(outcome=Outcome.EMPTY, error=f"{error}: {self.reason}" if self.reason else error)
        return None

    def _tokens(self) -> tuple[Tokens, ChunkSeries]:
        reasoning_chars = self.content.chars - self.answer.chars
        visibility = ReasoningVisibility.VISIBLE if reasoning_chars else ReasoningVisibility.HIDDEN
        # Gateways pass a summary on as if it were the reasoning; it has fewer characters than the reasoning has tokens.
        # A wrong guess does no harm, because the answer alone has a speed too.
        if (self.summarised or 0 < reasoning_chars < (self.usage.reasoning_tokens or 0)) and not self._is_whole():
            visibility = ReasoningVisibility.SUMMARISED
        if self.reasons_inline:
            visibility = ReasoningVisibility.VISIBLE
        speed_chunks = self.answer if visibility is ReasoningVisibility.SUMMARISED else self.content
        # The count up to the first answer chunk does not apply to a first chunk of reasoning.
        stated = None if visibility is ReasoningVisibility.VISIBLE else self.first_answer_tokens
        tokens = count_tokens(
            self.usage,
            content=self.content,
            speed_chunks=speed_chunks,
            visibility=visibility,
            first_chunk_tokens=stated,
        )
        return tokens, speed_chunks

    def _is_whole(self) -> bool:
        """Return true if the reasoning has too many characters for a summary of the output tokens it must be in."""
        if self.usage.output_tokens is None or self.usage.reasoning_tokens:
            return False
        rest = self.usage.output_tokens - self.answer.chars / CHARS_PER_TOKEN
        return self.content.chars - self.answer.chars >= WHOLE_CHARS_PER_TOKEN * rest > 0

    def _since_sent_us(self, at_ns: int | None) -> int | None:
        if at_ns is None or self.sent_ns is None:
            return None
        return max(0, round((at_ns - self.sent_ns) / 1000))

    def _cost_usd(self, price: Price | None, tokens: Tokens) -> float | None:
        if price is None or tokens.output is None or self.usage.prompt_tokens is None:
            return None
        return price.cost_usd(prompt_tokens=self.usage.prompt_tokens, output_tokens=tokens.output)


def _ratelimit(opened: Opened, failure: Failed | None) -> RateLimit | None:
    """Return the rate limit of the headers, with the wait time of the error if they have none."""
    stated = opened.ratelimit or RateLimit()
    if failure is None or failure.retry_after_us is None or stated.retry_after_us is not None:
        return opened.ratelimit
    return replace(stated, retry_after_us=failure.retry_after_us)
