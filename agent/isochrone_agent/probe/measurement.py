"""The measurement of one probe: a state machine that produces a Sample.

The laws:

1. The table `_NEXT` lists the legal transitions; any other signal raises `IllegalSignal` with the state and the signal.
2. Times are arguments, in nanoseconds of one monotonic clock. A time earlier than its predecessor is raised to it, so
   intervals are never negative.
3. `sample()` is total: it may be called at any time, and the outcome follows from the progress of the stream.
4. The first token is the first non-empty piece of reasoning, answer or tool text; nothing else ends the TTFT.
5. A chunk is not a token. Token counts come from the provider, or are an estimate labelled as such.
6. Speed is (tokens - tokens of the first chunk) / (last chunk - first chunk). It is undefined, and the sample flagged
   `buffered`, if the chunks did not arrive one by one, or too fast for the timestamps (see `stream_metrics`).
7. If reasoning is only summarised, its tokens are in no chunk: speed is the tokens of the answer over the chunks of the
   answer, and undefined if the provider does not count the reasoning separately.

Not proud of: if the provider does not report the tokens of the first chunk (usage with every chunk does), they are
estimated from its share of the characters. With one token per chunk, the common case, that is exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from isochrone_agent.probe import stream_metrics
from isochrone_agent.probe.dialects.signals import Answer, Failed, Finished, Opened, Reasoning, Sent, Signal, Usage
from isochrone_agent.probe.stream_metrics import ChunkSeries, ReasoningVisibility
from isochrone_wire.model import Outcome, Price, Quality, RateLimit, Sample, TokenSource

ERROR_CHARS = 200
ONLY_HIDDEN_REASONING = "all output tokens were used by hidden reasoning, and none by the answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The connection that a probe used; times in microseconds.

    A phase that did not take place is `None`. Round trips and retransmits are the kernel's figures. `loop_lag_us` is
    the longest time that received bytes waited for the event loop; without kernel timestamps, the maximum loop lag.
    """

    dns_us: int | None = None
    tcp_us: int | None = None
    tls_us: int | None = None
    remote_address: str | None = None
    reused: bool = False
    rtt_us: int | None = None
    rtt_min_us: int | None = None
    retransmits: int | None = None
    loop_lag_us: int | None = None


class IllegalSignal(ValueError):  # noqa: N818  # named for what happened, as h11 does
    """A signal that is illegal in the current state: the provider sent a malformed stream, or a dialect misread it."""


class State(Enum):
    """The progress of the probe."""

    IDLE = "idle"
    SENT = "sent"
    OPEN = "open"
    STREAMING = "streaming"
    DONE = "done"


_NEXT: dict[tuple[State, type[Signal]], State] = {
    (State.IDLE, Sent): State.SENT,
    (State.SENT, Opened): State.OPEN,
    (State.OPEN, Reasoning): State.STREAMING,
    (State.OPEN, Answer): State.STREAMING,
    (State.OPEN, Usage): State.OPEN,
    (State.OPEN, Finished): State.DONE,
    (State.STREAMING, Reasoning): State.STREAMING,
    (State.STREAMING, Answer): State.STREAMING,
    (State.STREAMING, Usage): State.STREAMING,
    (State.STREAMING, Finished): State.DONE,
    # Usage and a second marker (`finish_reason`, then `[DONE]`) may follow the end; tokens may not.
    (State.DONE, Usage): State.DONE,
    (State.DONE, Finished): State.DONE,
    **{(state, Failed): State.DONE for state in State},
}


class Measurement:
    """Records the signals of one probe, each with its time in monotonic nanoseconds."""

    def __init__(self) -> None:
        self.state = State.IDLE
        self.opened: Opened | None = None
        self.failed: Failed | None = None
        self.finished = False
        self.usage = Usage()
        self.sent_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.content = ChunkSeries()
        self.answer = ChunkSeries()
        self.summarised = False
        self.first_answer_tokens: int | None = None
        self._latest_ns = 0

    def __repr__(self) -> str:
        return f"<Measurement {self.state.value} chunks={len(self.chunk_ns)} finished={self.finished} {self.failed}>"

    @property
    def chunk_ns(self) -> Sequence[int]:
        """The times of all chunks that contain text."""
        return self.content.at_ns

    def observe(self, signal: Signal, at_ns: int) -> None:
        """Record `signal`, received with the read at `at_ns`. Raises `IllegalSignal`."""
        following = _NEXT.get((self.state, type(signal)))
        if following is None:
            raise IllegalSignal(f"unexpected {type(signal).__name__} in the state {self.state.value!r}")
        self._latest_ns = max(self._latest_ns, at_ns)
        _HANDLERS[type(signal)](self, signal, self._latest_ns)
        self.state = following

    def receive(self, at_ns: int) -> None:
        """Record the arrival of the first bytes of the response; later calls have no effect."""
        if self.first_byte_ns is None:
            self.first_byte_ns = at_ns

    def _on_sent(self, _signal: Sent, at_ns: int) -> None:
        self.sent_ns = at_ns

    def _on_opened(self, signal: Opened, at_ns: int) -> None:
        self.opened = signal
        self.receive(at_ns)

    def _on_reasoning(self, signal: Reasoning, at_ns: int) -> None:
        self.summarised = self.summarised or signal.summarised
        if signal.chars:
            self.content.add(signal.chars, at_ns)

    def _on_answer(self, signal: Answer, at_ns: int) -> None:
        self.content.add(signal.chars, at_ns)
        self.answer.add(signal.chars, at_ns)

    def _on_usage(self, signal: Usage, _at_ns: int) -> None:
        known = {name: getattr(signal, name) for name in Usage.__slots__}
        before = {name: getattr(self.usage, name) for name in Usage.__slots__}
        if len(self.answer.at_ns) == 1 and signal.output_tokens is not None:
            self.first_answer_tokens = signal.output_tokens - (signal.reasoning_tokens or 0)
        self.usage = Usage(**{name: before[name] if known[name] is None else known[name] for name in known})

    def _on_finished(self, _signal: Finished, _at_ns: int) -> None:
        self.finished = True

    def _on_failed(self, signal: Failed, _at_ns: int) -> None:
        # The first failure is the cause; later ones are its consequences.
        self.failed = self.failed or signal

    def sample(
        self,
        *,
        target_id: int,
        round_at: int,
        dispatched_at: int,
        connection: Connection = Connection(),
        price: Price | None = None,
        quality: Quality = Quality.CLEAN,
    ) -> Sample:
        """Build the sample from what has been recorded so far; times `..._at` are in microseconds since the epoch."""
        failure = self.failed or self._implied_failure()
        opened = self.opened or Opened(status=0)
        tokens, speed_chunks = self._tokens()
        resolution_ns = stream_metrics.resolution_ns(
            kernel=Quality.USER_STAMPS not in quality, loop_lag_us=connection.loop_lag_us
        )
        gaps = stream_metrics.gaps_between(self.chunk_ns)
        return Sample(
            target_id=target_id,
            round_at=round_at,
            outcome=failure.outcome if failure else Outcome.OK,
            dispatched_at=dispatched_at,
            late_us=dispatched_at - round_at,
            dns_us=connection.dns_us,
            tcp_us=connection.tcp_us,
            tls_us=connection.tls_us,
            ttfb_us=self._since_sent_us(self.first_byte_ns),
            ttft_us=self._since_sent_us(self.chunk_ns[0] if self.chunk_ns else None),
            ttfat_us=self._since_sent_us(self.answer.at_ns[0] if self.answer.at_ns else None),
            e2e_us=self._since_sent_us(self.chunk_ns[-1] if self.chunk_ns else None),
            tokens_per_second=stream_metrics.tokens_per_second(speed_chunks, tokens, resolution_ns=resolution_ns),
            chunk_gap_p50_us=gaps.p50_us,
            chunk_gap_p99_us=gaps.p99_us,
            chunk_gap_max_us=gaps.max_us,
            stalls=gaps.stalls,
            prompt_tokens=self.usage.prompt_tokens,
            output_tokens=tokens.output,
            reasoning_tokens=self.usage.reasoning_tokens,
            cached_tokens=self.usage.cached_tokens,
            first_chunk_tokens=tokens.first_chunk,
            chunks=len(self.chunk_ns),
            output_chars=self.content.chars,
            token_source=tokens.source,
            rtt_us=connection.rtt_us,
            rtt_min_us=connection.rtt_min_us,
            retransmits=connection.retransmits,
            loop_lag_us=connection.loop_lag_us,
            provider_us=self.usage.provider_us if opened.provider_us is None else opened.provider_us,
            remote_address=connection.remote_address,
            edge=opened.edge,
            request_id=opened.request_id,
            ratelimit=_ratelimit(opened, failure),
            cost_usd=stream_metrics.cost_usd(price, self.usage, tokens),
            quality=quality
            | self._quality(
                tokens,
                connection,
                has_speed=stream_metrics.speed_is_defined(speed_chunks, tokens, resolution_ns=resolution_ns),
            ),
            http_status=opened.status or None,
            error=failure.error[:ERROR_CHARS] if failure else None,
            timeout_us=failure.timeout_us if failure else None,
        )

    def _implied_failure(self) -> Failed | None:
        if not self.finished:
            return Failed(outcome=Outcome.TRUNCATED, error="the stream ended without its terminal marker")
        if not self.chunk_ns:
            hidden = self.summarised or self.usage.reasoning_tokens
            error = ONLY_HIDDEN_REASONING if hidden else "the stream finished without a single token"
            return Failed(outcome=Outcome.GARBLED, error=error)
        return None

    def _tokens(self) -> tuple[stream_metrics.Tokens, ChunkSeries]:
        """Return the token counts, and the chunks used for the speed."""
        visibility = stream_metrics.reasoning_visibility(
            self.content, self.answer, self.usage, summarised=self.summarised
        )
        speed_chunks = self.answer if visibility is ReasoningVisibility.SUMMARISED else self.content
        # The count up to the first answer chunk does not apply to a first chunk of reasoning.
        stated = None if visibility is ReasoningVisibility.VISIBLE else self.first_answer_tokens
        tokens = stream_metrics.count_tokens(
            self.usage,
            content=self.content,
            speed_chunks=speed_chunks,
            visibility=visibility,
            first_chunk_tokens=stated,
        )
        return tokens, speed_chunks

    def _since_sent_us(self, at_ns: int | None) -> int | None:
        if at_ns is None or self.sent_ns is None:
            return None
        return max(0, round((at_ns - self.sent_ns) / 1000))

    def _quality(self, tokens: stream_metrics.Tokens, connection: Connection, *, has_speed: bool) -> Quality:
        raised = {
            Quality.BUFFERED: bool(self.chunk_ns) and not has_speed,
            Quality.CACHED: bool(self.usage.cached_tokens),
            Quality.ESTIMATED_TOKENS: tokens.source is TokenSource.ESTIMATED,
            Quality.REUSED: connection.reused,
        }
        return Quality(sum(flag for flag, up in raised.items() if up))


def _ratelimit(opened: Opened, failure: Failed | None) -> RateLimit | None:
    """Return the rate limit of the headers, with the wait time of the error if they have none."""
    stated = opened.ratelimit or RateLimit()
    if failure is None or failure.retry_after_us is None or stated.retry_after_us is not None:
        return opened.ratelimit
    return replace(stated, retry_after_us=failure.retry_after_us)


_HANDLERS: dict[type[Signal], Callable[[Measurement, Any, int], None]] = {
    Sent: Measurement._on_sent,  # noqa: SLF001  # the table belongs to the class above
    Opened: Measurement._on_opened,  # noqa: SLF001  # as above
    Reasoning: Measurement._on_reasoning,  # noqa: SLF001  # as above
    Answer: Measurement._on_answer,  # noqa: SLF001  # as above
    Usage: Measurement._on_usage,  # noqa: SLF001  # as above
    Finished: Measurement._on_finished,  # noqa: SLF001  # as above
    Failed: Measurement._on_failed,  # noqa: SLF001  # as above
}
