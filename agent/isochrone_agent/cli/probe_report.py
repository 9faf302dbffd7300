"""Results of `probe`: bursts, sweeps and limits, as a table and as Markdown. Pure.

Times are in milliseconds; a dash stands for an unknown value. A sweep over prompt lengths fits TTFT = a + b * prompt
tokens with the Theil-Sen estimator, which a single slow answer cannot distort: b is the median of the slopes between
all pairs of points with different lengths, a the median of the residuals. The bounds of b are the order statistics of
those slopes at the ranks given by Kendall's S (Sen, 1968, JASA 63:1379-1389, eq. 2.6, with the variance corrected for
ties).
"""

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, isfinite
from operator import ge, le
from statistics import median

from isochrone_agent.probe.measurement import ONLY_HIDDEN_REASONING
from isochrone_wire.model import SECOND_US, Outcome, Quality, Sample
from isochrone_wire.text import escaped_markdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The result of a burst: output tokens of all streams by the time from first request to last token."""

    streams: int
    succeeded: int
    tokens_per_second: float | None
    slowest_tokens_per_second: float | None
    median_tokens_per_second: float | None
    fastest_tokens_per_second: float | None
    ttft_median_us: float | None
    ttft_max_us: int | None


def summarise(samples: Sequence[Sample]) -> Burst:
    """Summarise one burst; a figure is `None` if no stream succeeded or none has a speed."""
    succeeded_samples = [sample for sample in samples if sample.outcome is Outcome.OK]
    speeds = sorted(sample.tokens_per_second for sample in succeeded_samples if sample.tokens_per_second is not None)
    firsts = [sample.ttft_us for sample in succeeded_samples if sample.ttft_us is not None]
    return Burst(
        streams=len(samples),
        succeeded=len(succeeded_samples),
        tokens_per_second=_throughput(succeeded_samples),
        slowest_tokens_per_second=speeds[0] if speeds else None,
        median_tokens_per_second=median(speeds) if speeds else None,
        fastest_tokens_per_second=speeds[-1] if speeds else None,
        ttft_median_us=median(firsts) if firsts else None,
        ttft_max_us=max(firsts, default=None),
    )


_SUMMARISED = ("connect_us", "ttfb_us", "ttft_us", "ttft_cold_us", "e2e_us", "tokens_per_second")
_PERCENTS = (50, 90, 99)


def percentiles(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Return p50, p90 and p99 of each metric over the successful runs that have it, by nearest rank."""
    succeeded = [sample for sample in samples if sample.outcome is Outcome.OK]
    known = {
        metric: sorted(value for sample in succeeded if (value := getattr(sample, metric)) is not None)
        for metric in _SUMMARISED
    }
    return {
        metric: {f"p{percent}": values[math.ceil(len(values) * percent / 100) - 1] for percent in _PERCENTS}
        for metric, values in known.items()
        if values
    }


def _throughput(succeeded_samples: Sequence[Sample]) -> float | None:
    # All times are from one machine's wall clock: the only place where wall times are subtracted, to the millisecond.
    sent_at = [sample.dispatched_at + (sample.connect_us or 0) for sample in succeeded_samples]
    end_at = [at + (sample.e2e_us or 0) for at, sample in zip(sent_at, succeeded_samples, strict=True)]
    span_us = max(end_at, default=0) - min(sent_at, default=0)
    tokens = sum(sample.output_tokens or 0 for sample in succeeded_samples)
    return tokens * SECOND_US / span_us if span_us > 0 else None


TTFT, SPEED = "ttft_us", "tokens_per_second"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the median of the `runs` keeps the limit; it is `None` if half of them `failed` or none has a value."""

    metric: str
    limit: float
    median: float | None
    runs: int
    failed: int
    kept: bool


def judge(samples: Sequence[Sample], *, max_ttft_us: int | None, min_tokens_per_second: float | None) -> list[Verdict]:
    """The verdict on each limit that is given, a duration in microseconds and a speed."""
    failed = sum(sample.outcome is not Outcome.OK for sample in samples)
    limits = ((TTFT, max_ttft_us, inf, le), (SPEED, min_tokens_per_second, -inf, ge))
    verdicts = []
    for metric, limit, worst, keeps in limits:
        if limit is not None:
            values = [getattr(sample, metric) if sample.outcome is Outcome.OK else worst for sample in samples]
            known = [value for value in values if value is not None]
            found = median(known) if known else inf
            middle = found if isfinite(found) else None
            kept = middle is not None and keeps(middle, limit)
            verdicts.append(
                Verdict(metric=metric, limit=limit, median=middle, runs=len(samples), failed=failed, kept=kept)
            )
    return verdicts


NORMAL_95 = 1.959964
MIN_POINTS = 6
_WORDS = "recursion means that a function calls itself on a smaller part of the same task until nothing is left to do "


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFit:
    """`ttft_us = fixed_us + us_per_token * prompt tokens`; `low`, `high`: 95 % interval of the slope, or `None`."""

    fixed_us: float
    us_per_token: float
    low: float | None
    high: float | None
    points: int


def fit(samples: Sequence[Sample]) -> LinearFit | None:
    """Fit a line to the successful samples; `None` without two different lengths."""
    pairs = [(sample.prompt_tokens, sample.ttft_us) for sample in samples if sample.outcome is Outcome.OK]
    return fit_line([(tokens, us) for tokens, us in pairs if tokens is not None and us is not None])


def fit_line(points: Sequence[tuple[int, int]]) -> LinearFit | None:
    """Fit a line to points of (prompt tokens, TTFT in microseconds); `None` without two different lengths."""
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2)
    if not slopes:
        return None
    slope = median(slopes)
    low, high = _interval(slopes, points) if len(points) >= MIN_POINTS else (None, None)
    fixed = median(y - slope * x for x, y in points)
    return LinearFit(fixed_us=fixed, us_per_token=slope, low=low, high=high, points=len(points))


def make_prompt(words: int) -> str:
    """Return a prompt of `words` words; a word is about a token."""
    vocabulary = _WORDS.split()
    text = " ".join(vocabulary[number % len(vocabulary)] for number in range(max(0, words - 4)))
    return f"{text} Summarise this in brief.".strip()


def _interval(slopes: Sequence[float], points: Sequence[tuple[int, int]]) -> tuple[float | None, float | None]:
    n, ties = len(points), Counter(x for x, _ in points).values()
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    reach = NORMAL_95 * math.sqrt(variance)
    lower, upper = math.floor((len(slopes) - reach) / 2), math.ceil((len(slopes) + reach) / 2)
    if lower < 0 or upper >= len(slopes):
        return None, None
    return slopes[lower], slopes[upper]


UNKNOWN = "–"  # noqa: RUF001  # a dash, because a minus would look like a number
HEADINGS = ("run", "dns", "tcp", "tls", "ttfb", "ttft", "e2e", "tok/s", "tokens", "rtt", "outcome")
_WIDTHS = (3, 6, 6, 6, 6, 6, 6, 6, 6, 5, 0)
# A narrower terminal has no room for the phases of the connection.
_ROOMY = 80
_PHASES = ("dns", "tcp", "tls")
_TIMES = ("dns_us", "tcp_us", "tls_us", "ttfb_us", "ttft_us", "e2e_us")
LEGEND = (
    "times in ms; ttfb, ttft and e2e are from the request sent to the first byte, first token and last token, "
    "without the connection (dns + tcp + tls); rtt is measured by the kernel, to the provider's edge"
)

_EXPLANATIONS = {
    Outcome.THROTTLED: "The provider throttled the request (429), so its latency was not measured.",
    Outcome.HTTP_ERROR: "The provider returned an error; see its message above.",
    Outcome.CONNECT_FAILED: "No connection; check the address, the host name and the certificate.",
    Outcome.TIMED_OUT: "The timeout was reached; increase --timeout if the model needs longer.",
    Outcome.STALLED: "The stream stalled in the middle of the answer.",
    Outcome.TRUNCATED: "The answer is incomplete: the stream ended without the event that ends one, such as [DONE].",
    Outcome.GARBLED: "No stream of this dialect; check --dialect and --base-url (which usually ends in /v1).",
    Outcome.STREAM_ERROR: "The provider reported an error inside the stream; see its message above.",
    Outcome.FILTERED: "A content filter of the provider ended or refused the answer; another prompt may pass.",
    Outcome.EMPTY: "The stream was complete, but had no token.",
}
_FLAGS = {
    Quality.LAGGED: "this machine was busy, and received bytes waited for more than 5 ms before they were read",
    Quality.BUFFERED: "the text arrived in fewer than 3 pieces, or faster than it can be timed, so it has no tok/s",
    Quality.CACHED: "the provider took a part of the prompt from its cache",
    Quality.ESTIMATED_TOKENS: "the provider sent no token counts; about 4 characters count as a token (~)",
    Quality.CLOCK_STEPPED: "the wall clock was set during the run; durations do not depend on it",
    Quality.REUSED: "the connection of the run before was used, so there is no dns, tcp and tls",
    Quality.RECONNECTED: "the server had closed the connection of the run before, so the request went over a new one",
    Quality.USER_STAMPS: "without valid receive timestamps of the kernel, the times include the wait for this process",
}
_UNCOUNTED = "no tok/s: the provider does not count the tokens of the visible text apart from hidden reasoning"
_TOO_SHORT = "no tok/s: the answer has no token after its first chunk"


def cells(number: int, sample: Sample) -> tuple[str, ...]:
    """The texts below the headings for one sample."""
    times = [ms(getattr(sample, name)) for name in _TIMES]
    rate, tokens, rtt = _rate(sample.tokens_per_second), _tokens(sample), ms(sample.rtt_us)
    return (str(number), *times, rate, tokens, rtt, _outcome(sample))


def sample_row(number: int, sample: Sample, *, width: int) -> str:
    """Format one sample as a row; flags and errors that do not fit follow on lines of their own."""
    *numbers, _ = texts = cells(number, sample)
    if len(whole := row(texts, width)) <= width:
        return whole
    details = _outcome(sample).removeprefix(sample.outcome.value).removeprefix(":").strip()
    return f"{row((*numbers, sample.outcome.value), width)}\n{_wrapped(details, width, indent=' ' * 4, then=' ' * 4)}"


def _wrapped(text: str, width: int, *, indent: str = "", then: str) -> str:
    """Break a text between words; only a word longer than a line, such as an address, is broken."""
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=then, break_on_hyphens=False)


def summary(samples: Sequence[Sample]) -> list[str]:
    """Summarise the runs: medians, and one sentence for each kind of failure, each flag and each missing speed."""
    succeeded = [sample for sample in samples if sample.outcome is Outcome.OK]
    by_outcome = sorted(samples, key=lambda sample: list(Outcome).index(sample.outcome))
    explained = dict.fromkeys(filter(None, map(_explanation, by_outcome)))
    flags = [f"{flag.labels[0]}: {text}" for flag, text in _FLAGS.items() if any(flag in s.quality for s in samples)]
    speeds = dict.fromkeys(filter(None, map(_missing_speed, succeeded)))
    unknown = sum(sample.frames_unknown for sample in samples)
    frames = [f"frames that are neither content nor metadata of this dialect: {unknown}"] if unknown else []
    return [*(_medians(succeeded, len(samples)) if succeeded else ()), *explained, *flags, *speeds, *frames]


def _missing_speed(sample: Sample) -> str:
    """Return why a success has no speed; empty if it has one, or if a flag says it."""
    if sample.tokens_per_second is not None or Quality.BUFFERED in sample.quality:
        return ""
    return _UNCOUNTED if sample.first_chunk_tokens is None else _TOO_SHORT


def _medians(succeeded: Sequence[Sample], runs: int) -> list[str]:
    """The medians, in one line if all successful runs have a speed: a run may have a first token but no speed."""
    ttft = median(sample.ttft_us or 0 for sample in succeeded)
    cold = [sample.ttft_cold_us for sample in succeeded if sample.ttft_cold_us is not None]
    fresh = f" ({ms(median(cold))} ms on a new connection)" if cold else ""
    rates = [sample.tokens_per_second for sample in succeeded if sample.tokens_per_second]
    speed = f"{_rate(median(rates) if rates else None)} tokens/s"
    first = f"first token after {ms(ttft)} ms{fresh}"
    if len(rates) == len(succeeded):
        return [f"{first}, {speed}: median of {len(succeeded)} of {runs} runs"]
    measured = f"{speed}: median of {len(rates)} of {runs} runs" if rates else "no run has a speed"
    return [f"{first}: median of {len(succeeded)} of {runs} runs", measured]


def _explanation(sample: Sample) -> str:
    error = sample.error or ""
    if error.startswith(ONLY_HIDDEN_REASONING):
        return "The hidden reasoning used all output tokens: increase --max-tokens, or set a lower --effort."
    if error.endswith(("try http://", "try https://")):
        return "The scheme of --base-url may not fit the port; see the outcome above."
    if sample.http_status == 404:  # noqa: PLR2004  # Not Found
        return "The model or the path was not found (404); check both: --base-url usually ends in /v1."
    if sample.outcome is Outcome.HTTP_ERROR and error == f"HTTP {sample.http_status}":
        return "The provider returned an error without a message; the server's log may have the reason."
    if sample.outcome is Outcome.TRUNCATED and sample.http_status is None and sample.tls_us is None:
        return "The connection was closed before an answer; if the port speaks TLS, use https:// in --base-url."
    return _EXPLANATIONS.get(sample.outcome, "")


def verdict_sentence(verdict: Verdict) -> str:
    """The limit, whether it is kept, and the median that decides it."""
    is_time = verdict.metric == TTFT
    show, unit, least = (ms, "ms", "first token after at most") if is_time else (_rate, "tokens/s", "at least")
    limit = f"{least} {show(verdict.limit)} {unit}"
    if verdict.median is not None:
        reason = f"the median of {verdict.runs} runs is {show(verdict.median)} {unit}"
    elif verdict.failed:
        reason = f"{verdict.failed} of {verdict.runs} runs failed"
    else:
        reason = f"none of {verdict.runs} runs has a {'first token' if is_time else 'speed'}"
    return f"limit {'kept' if verdict.kept else 'not kept'}: {limit}; {reason}"


def footer(
    samples: Sequence[Sample],
    bursts: Sequence[Burst],
    linear_fit: LinearFit | None,
    verdicts: Sequence[Verdict],
    *,
    width: int,
) -> list[str]:
    """Return the texts below the table: limits, the summary, bursts, the fit of a sweep, and the legend."""
    lines = [*map(verdict_sentence, verdicts), *summary(samples)]
    for number, burst in enumerate(bursts, 1):
        slowest, fastest = _rate(burst.slowest_tokens_per_second), _rate(burst.fastest_tokens_per_second)
        lines.append(
            f"burst {number}: {burst.succeeded} of {burst.streams} streams, "
            f"{_rate(burst.tokens_per_second)} tokens/s in total, {slowest} to {fastest} each, "
            f"first token after {ms(burst.ttft_median_us)} ms (median) to {ms(burst.ttft_max_us)} ms"
        )
    if (fit := linear_fit) is not None:
        interval = "" if fit.low is None or fit.high is None else f", 95 % interval {fit.low:.2f} … {fit.high:.2f}"
        lines.append(
            f"first token = {ms(fit.fixed_us)} ms + {fit.us_per_token:.2f} µs per prompt token{interval} "
            f"({fit.points} points, Theil-Sen)"
        )
    return [_wrapped(line, width, then="  ") for line in (*lines, LEGEND)]


def ms(us: float | None) -> str:
    """Format microseconds as milliseconds with a suitable number of digits: 0.05, 12.3, 1204."""
    if us is None:
        return UNKNOWN
    value = us / 1000
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"  # noqa: PLR2004  # digits


def _rate(tokens_per_second: float | None) -> str:
    return UNKNOWN if tokens_per_second is None else f"{tokens_per_second:.1f}"


def _tokens(sample: Sample) -> str:
    if sample.output_tokens is None:
        return UNKNOWN
    return f"{'~' if Quality.ESTIMATED_TOKENS in sample.quality else ''}{sample.output_tokens}"


def _outcome(sample: Sample) -> str:
    flags = f" ({', '.join(sample.quality.labels)})" if sample.quality else ""
    return f"{sample.outcome.value}{flags}" + (f": {sample.error}" if sample.error else "")


def row(cells: Sequence[str], width: int) -> str:
    """Return a row of the table, of `cells` as below `HEADINGS`."""
    shown = [place for place, name in enumerate(HEADINGS) if width >= _ROOMY or name not in _PHASES]
    return " ".join(cells[place].rjust(_WIDTHS[place]) for place in shown).rstrip()


def markdown(title: str, batches: Sequence[Sequence[Sample]], verdicts: Sequence[Verdict]) -> str:
    """The Markdown text; `batches` are the samples of each run. Texts from elsewhere are escaped."""
    samples = [sample for batch in batches for sample in batch]
    rows = [cells(number, sample) for number, batch in enumerate(batches, 1) for sample in batch]
    blocks = [
        f"### {escaped_markdown(title)}",
        *_list(verdict_sentence(verdict) for verdict in verdicts),
        "\n".join(map(_line, [HEADINGS, ["---:"] * len(HEADINGS), *rows])),
        *_list((*summary(samples), LEGEND)),
    ]
    return "\n\n".join(blocks) + "\n\n"


def _list(sentences: Iterable[str]) -> Iterator[str]:
    items = [f"- {escaped_markdown(sentence)}" for sentence in sentences]
    if items:
        yield "\n".join(items)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped_markdown, cells))} |"
