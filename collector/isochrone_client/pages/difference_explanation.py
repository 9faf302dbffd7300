"""A differential told in sentences: what it is, how sure that is, where it comes from, and what would help. Pure."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isochrone_client.formats import age, fitting_decimals, interval, minute, number, percent
from isochrone_wire.answers import Decision, Differential, Metric, Part, Proportion, Side

MIN_ROUNDS = 6
HANDSHAKES = ("dns", "tcp", "tls")
NETWORK = (*HANDSHAKES, "rtt")
# What `ttft_cold` is made of. The provider's own figure is a part of the server's, and stands beside.
ADDENDS = (*NETWORK, "server")
_FULL_COVERAGE = 0.9
_HALF_COVERAGE = 0.5
_MANY_FAILURES = 0.02
_SLIGHT = 0.01
_NEVER = 1e6
_US_PER_MS = 1000.0
_HUNDRED = 100.0

# What a metric is called in a sentence, and what it is when it is less and when it is more.
_SPOKEN = {
    Metric.TTFT: ("time to first token", "shorter", "longer"),
    Metric.TTFT_COLD: ("time to first token over a fresh connection", "shorter", "longer"),
    Metric.TTFAT: ("time to the first token of the answer", "shorter", "longer"),
    Metric.E2E: ("time to the last token", "shorter", "longer"),
    Metric.TOKENS_PER_SECOND: ("speed", "lower", "higher"),
    Metric.CONNECT: ("time to connect", "shorter", "longer"),
    Metric.RTT: ("round-trip time", "shorter", "longer"),
}
_PHASE = {
    "dns": "name lookup",
    "tcp": "TCP handshake",
    "tls": "TLS handshake",
    "rtt": "the request's way there and back",
    "server": "the server",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """One paragraph of a story: `topic` in a word or two, and its sentences."""

    topic: str
    text: str


def story(row: Differential, *, now_at: int) -> tuple[Paragraph, ...]:
    """The story of one differential, ages as of `now_at` (microseconds since the epoch)."""
    chapters = (
        ("difference", _difference(row)),
        ("decision", _decision(row)),
        ("how sure", _sureness(row)),
        ("where from", _origin(row)),
        ("handshakes", _handshakes(row)),
        ("provider", _provider(row)),
        (row.baseline, _side(row.baseline, row.baseline_side, row.baseline_n)),
        (row.region, _side(row.region, row.region_side, row.region_n)),
        ("freshness", _freshness(row, now_at=now_at)),
        ("what helps", _help(row)),
    )
    told = ((topic, " ".join(sentences)) for topic, sentences in chapters)
    return tuple(Paragraph(topic=topic, text=text) for topic, text in told if text)


def part_of(row: Differential, name: str) -> Part | None:
    """The part of that name, where it is known."""
    return next((part for part in row.parts if part.name == name), None)


def handshake_share(row: Differential, of: Callable[[Part], float | None]) -> float | None:
    """How much of one side's `ttft_cold` is name lookup and handshakes, from 0 to 1, by the medians of its parts."""
    medians = {part.name: of(part) for part in row.parts if part.name in ADDENDS}
    known = {name: value for name, value in medians.items() if value is not None}
    whole = sum(known.values())
    if "server" not in known or not known.keys() & {*HANDSHAKES} or whole <= 0:
        return None
    return sum(known.get(name, 0.0) for name in HANDSHAKES) / whole


def rounds_needed(row: Differential) -> int | None:
    """About how many rounds would decide an undecided differential if things go on as they are; `None` if unknown.

    An interval narrows with the square root of the rounds. It has to get off zero where the shift matters, and inside
    the margin where it does not.
    """
    if row.shift is None or row.shift_low is None or row.shift_high is None or row.margin is None:
        return None
    half = (row.shift_high - row.shift_low) / 2
    size = abs(row.shift)
    room = size if size >= row.margin else row.margin - size
    factor = (half / room) ** 2 if room else math.inf
    return None if factor * row.n > _NEVER else max(row.n + 1, math.ceil(1.1 * factor * row.n))


def _difference(row: Differential) -> Iterator[str]:
    noun, less, more = _SPOKEN[row.metric]
    if row.shift is None or row.shift_low is None or row.shift_high is None:
        yield f"How much the {noun} of {row.target} differs between {row.region} and {row.baseline} is not known."
        return
    word = "the same" if not row.shift else less if row.shift < 0 else more
    yield (
        f"The {noun} of {row.target} is {_amount(row, abs(row.shift))} {word} from {row.region} than from "
        f"{row.baseline} ({percent(row.shift_percent)} %)."
    )
    yield f"The 95 % interval of this shift is {_bounds(row, row.shift_low, row.shift_high)}."
    yield f"The medians are {_amount(row, row.region_median)} and {_amount(row, row.baseline_median)}."


def _decision(row: Differential) -> Iterator[str]:
    margin = f"the margin of {_amount(row, row.margin)}, below which a difference does not matter"
    yield {
        Decision.FASTER: f"{row.region} is faster: the interval is off zero, and the shift reaches {margin}.",
        Decision.SLOWER: f"{row.region} is slower: the interval is off zero, and the shift reaches {margin}.",
        Decision.EQUIVALENT: f"The two are equivalent: the whole interval lies within {margin}.",
        Decision.UNDECIDED: f"It is undecided: {row.reason or 'the samples do not settle it'}.",
    }[row.decision]


def _sureness(row: Differential) -> Iterator[str]:
    if row.paired:
        yield f"Both sides have a value in {_counted(row.n, 'round')}, which are compared round by round."
    else:
        yield (
            f"The two have no rounds in common: {_counted(row.region_n, 'round')} of {row.region} stand beside "
            f"{row.baseline_n} of {row.baseline}, unpaired."
        )
    if row.n_eff is not None and row.n_eff < row.n - 0.5:
        yield f"Neighbouring rounds resemble each other, so they are worth {number(row.n_eff, decimals=0)}."
    if row.faster_probability is not None:
        yield _better(row.region, row.faster_probability)
    if row.q_value is not None:
        yield f"Among all pairs of this answer it is told from none at a false-discovery rate of {row.q_value:.2g}."


def _better(region: str, probability: float) -> str:
    # No number of rounds shows a probability of nothing or of one.
    if not 0 < probability < 1:
        return f"{region} did better in {'every' if probability else 'no'} round."
    return f"In a round, {region} does better with a probability of {_HUNDRED * probability:.1f} %."


def _origin(row: Differential) -> Iterator[str]:
    parts = {part.name: part for part in row.parts if part.name in ADDENDS}
    if not parts:
        yield from _split(row)
        return
    what = (
        "A first token over a fresh connection (ttft_cold)" if parts.keys() & {*HANDSHAKES} else "A first token (ttft)"
    )
    phases = ", ".join(f"{_PHASE[name]} {_part(part)}" for name, part in parts.items())
    yield f"{what} differs by about {_ms(_added(row, ADDENDS))} in all: {phases}."
    network, server = _added(row, NETWORK), _added(row, ("server",))
    yield f"The network adds {_ms(network)} of it, the server {_ms(server)}: {_verdict(network, server)}."
    absent = [name for name in ADDENDS if name not in parts]
    if absent:
        yield f"There is no {' and no '.join(absent)} in these requests."


def _added(row: Differential, names: tuple[str, ...]) -> float:
    return sum(part.shift for part in row.parts if part.name in names)


def _split(row: Differential) -> Iterator[str]:
    if row.network_shift is not None and row.server_shift is not None:
        network, server = row.network_shift, row.server_shift
        yield f"The network adds {_ms(network)}, the server {_ms(server)}: {_verdict(network, server)}."


def _verdict(network: float, server: float) -> str:
    whole = abs(network) + abs(server)
    if not whole:
        return "there is nothing to explain"
    share = abs(network) / whole
    if not _SLIGHT <= share <= 1 - _SLIGHT:
        return f"all of it is the {'network' if share > _SLIGHT else 'server'}'s"
    if network * server < 0:
        return f"they work against each other, the {'network' if share > 0.5 else 'server'} being the stronger"  # noqa: PLR2004  # half
    return f"{_HUNDRED * share:.0f} % network, {_HUNDRED * (1 - share):.0f} % server"


def _handshakes(row: Differential) -> Iterator[str]:
    region = handshake_share(row, lambda part: part.region_median)
    baseline = handshake_share(row, lambda part: part.baseline_median)
    if region is None or baseline is None:
        return
    yield (
        f"Name lookup and handshakes are {_HUNDRED * region:.1f} % of ttft_cold from {row.region} and "
        f"{_HUNDRED * baseline:.1f} % from {row.baseline}."
    )
    if row.metric is not Metric.TTFT_COLD:
        saved = _ms(_added(row, HANDSHAKES))
        yield f"A connection that is already open saves them, and with them {saved} of the difference."


def _provider(row: Differential) -> Iterator[str]:
    own, server = part_of(row, "provider"), part_of(row, "server")
    if own is None:
        if row.parts:
            yield "The provider does not report a time of its own."
        return
    yield f"By the provider's own clock the difference is {_part(own)}, in {_counted(own.n, 'round')}."
    if server is not None:
        yield f"The server's part is {_ms(server.shift)} as we see it."


def _side(region: str, side: Side, rounds: int) -> Iterator[str]:
    yield f"{_counted(rounds, 'round')} of {region} {'has' if rounds == 1 else 'have'} a value."
    if side.coverage is not None:
        yield f"Of the planned rounds {_HUNDRED * side.coverage:.1f} % left a sample."
    if side.failures is not None:
        yield f"{_failures(side.failures)}"


def _failures(failures: Proportion) -> str:
    bounds = f"{number(_HUNDRED * failures.low)} … {number(_HUNDRED * failures.high)} %"
    return f"Of {_counted(failures.n, 'probe')}, {number(_HUNDRED * failures.value)} % failed (95 % interval {bounds})."


def _freshness(row: Differential, *, now_at: int) -> Iterator[str]:
    if row.newest_at is not None:
        yield f"The newest round is {age(row.newest_at, now_at=now_at)} old."
    if row.since_at is not None:
        yield f"Something changed at {minute(row.since_at)} UTC; rounds before that are left out."


def _help(row: Differential) -> Iterator[str]:
    if row.decision is not Decision.UNDECIDED:
        return
    for region, rounds, side in (
        (row.baseline, row.baseline_n, row.baseline_side),
        (row.region, row.region_n, row.region_side),
    ):
        yield from _help_of_side(region, rounds, side)
    needed = rounds_needed(row)
    if row.n < MIN_ROUNDS:
        yield f"{_counted(MIN_ROUNDS - row.n, 'more round')} with a value from both sides; or a longer --window."
    elif needed is not None and needed > row.n:
        yield f"As things are, about {needed} rounds would decide it: wait, or use a longer --window."


def _help_of_side(region: str, rounds: int, side: Side) -> Iterator[str]:
    if not rounds:
        yield f"There is nothing from {region}: `isochrone regions` says who measures there."
    elif side.coverage is not None and side.coverage < _HALF_COVERAGE:
        yield f"Too few rounds from {region} left a sample: see `isochrone coverage --region {region}`."
    if side.failures is not None and side.failures.value > _MANY_FAILURES:
        yield f"`isochrone samples --region {region}` says why probes from there fail."


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _amount(row: Differential, value: float | None) -> str:
    """A quantity of the row's metric with its unit."""
    if row.unit == "us":
        return f"{number(None if value is None else value / _US_PER_MS)} ms"
    return f"{number(value)} {row.unit}"


def _bounds(row: Differential, low: float, high: float) -> str:
    scale, unit = (_US_PER_MS, "ms") if row.unit == "us" else (1.0, row.unit)
    return f"{interval(low / scale, high / scale, signed=True)} {unit}"


def _ms(us: float) -> str:
    return f"{number(us / _US_PER_MS, signed=True)} ms"


def _part(part: Part) -> str:
    """`+178 ms (+177 … +179)`."""
    if part.low is None or part.high is None:
        return f"{_ms(part.shift)} (no interval)"
    bounds = [part.low / _US_PER_MS, part.high / _US_PER_MS]
    decimals = fitting_decimals(max(map(abs, bounds)))
    return f"{number(part.shift / _US_PER_MS, signed=True, decimals=decimals)} ms ({interval(*bounds, signed=True)})"
