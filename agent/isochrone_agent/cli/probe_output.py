"""Samples for a person at a terminal. Pure: samples in, lines out; times in milliseconds, a dash for the unknown."""

from collections.abc import Sequence
from statistics import median

from isochrone_agent.cli.burst import Burst
from isochrone_agent.cli.sweep import LinearFit
from isochrone_agent.probe.measurement import ONLY_HIDDEN_REASONING
from isochrone_wire.model import Outcome, Quality, Sample

UNKNOWN = "–"  # noqa: RUF001  # a dash is what people expect here, a minus would be a number
HEADINGS = ("run", "dns", "tcp", "tls", "ttfb", "ttft", "e2e", "tok/s", "tokens", "rtt", "outcome")
_WIDTHS = (4, 7, 7, 7, 9, 9, 10, 7, 8, 7, 0)
_TIMES = ("dns_us", "tcp_us", "tls_us", "ttfb_us", "ttft_us", "e2e_us")
LEGEND = (
    "times in ms; ttfb, ttft and e2e run from the request sent to the first byte, first token and last token,\n"
    "so the connection (dns + tcp + tls) is not in them; rtt is the kernel's, to the provider's edge"
)

_EXPLANATIONS = {
    Outcome.THROTTLED: "The provider asked to be left alone for a while (429): its latency was not measured.",
    Outcome.HTTP_ERROR: "The provider answered with an error; see its words above.",
    Outcome.CONNECT_FAILED: "No connection came about; check the address, the name and the certificate.",
    Outcome.TIMED_OUT: "The limit was reached first; raise it with --timeout if the model may take longer.",
    Outcome.STALLED: "The stream went silent in the middle of the answer.",
    Outcome.TRUNCATED: "The stream broke off before its end.",
    Outcome.GARBLED: "What came was not the stream this dialect speaks; check --base-url (it mostly ends in /v1).",
}
_HIDDEN_REASONING = (
    "The model thought in silence until its limit was reached: raise --max-tokens, or pin a lower --effort."
)
_NOT_FOUND = "The model or the address is not known there (404); check both: --base-url mostly ends in /v1."


def header_row() -> str:
    """The line above the runs."""
    return _row(HEADINGS)


def sample_row(number: int, sample: Sample) -> str:
    """One run on one line."""
    times = [ms(getattr(sample, name)) for name in _TIMES]
    return _row(
        (str(number), *times, _rate(sample.tokens_per_second), _tokens(sample), ms(sample.rtt_us), _outcome(sample))
    )


def summary(samples: Sequence[Sample]) -> list[str]:
    """What the runs amount to: medians, the cold first token, and a sentence for every way to fail that occurred."""
    succeeded = [sample for sample in samples if sample.outcome is Outcome.OK]
    lines = []
    if succeeded:
        ttft = median(sample.ttft_us or 0 for sample in succeeded)
        cold = median(sample.ttft_cold_us or sample.ttft_us or 0 for sample in succeeded)
        rates = [sample.tokens_per_second for sample in succeeded if sample.tokens_per_second]
        lines.append(
            f"first token after {ms(ttft)} ms ({ms(cold)} ms on a new connection), "
            f"{_rate(median(rates) if rates else None)} tokens/s: median of {len(succeeded)} of {len(samples)} runs"
        )
    by_outcome = sorted(samples, key=lambda sample: list(Outcome).index(sample.outcome))
    return [*lines, *dict.fromkeys(filter(None, map(_explanation, by_outcome)))]


def _explanation(sample: Sample) -> str:
    """What it means that a run ended as it did; empty for a success."""
    if sample.error == ONLY_HIDDEN_REASONING:
        return _HIDDEN_REASONING
    if sample.http_status == 404:  # noqa: PLR2004  # Not Found
        return _NOT_FOUND
    return _EXPLANATIONS.get(sample.outcome, "")


def footer(samples: Sequence[Sample], bursts: Sequence[Burst], line: LinearFit | None) -> list[str]:
    """Everything below the runs: what they amount to, what bursts and a sweep add to it, and the legend."""
    lines = summary(samples)
    lines += [_burst_summary(number, burst) for number, burst in enumerate(bursts, 1)]
    if line is not None:
        lines.append(_sweep_summary(line))
    return [*lines, LEGEND]


def _burst_summary(number: int, burst: Burst) -> str:
    slowest, fastest = _rate(burst.slowest_tokens_per_second), _rate(burst.fastest_tokens_per_second)
    return (
        f"burst {number}: {burst.succeeded} of {burst.streams} streams, "
        f"{_rate(burst.tokens_per_second)} tokens/s together, {slowest} to {fastest} each, "
        f"first tokens after {ms(burst.ttft_median_us)} ms (median) to {ms(burst.ttft_max_us)} ms"
    )


def _sweep_summary(line: LinearFit) -> str:
    interval = "" if line.low is None or line.high is None else f", 95 % interval {line.low:.2f} … {line.high:.2f}"
    return (
        f"first token = {ms(line.fixed_us)} ms + {line.us_per_token:.2f} µs per prompt token{interval} "
        f"({line.points} points, Theil and Sen)"
    )


def ms(us: float | None) -> str:
    """Microseconds as milliseconds with sensible digits: 0.05, 12.3, 1204."""
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


def _row(cells: Sequence[str]) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
