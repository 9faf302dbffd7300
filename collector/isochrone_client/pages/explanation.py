"""Differentials in sentences: size, confidence, origin and the next steps; and the contribution of each phase."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isochrone_client import formats
from isochrone_client.pages import differentials
from isochrone_client.pages.cells import counted, notes_that_hold
from isochrone_client.pages.matrix import ROUNDS_NEEDED
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import Decision, Differential, DifferentialList, Metric, Part, Side
from isochrone_wire.json_format import minute
from isochrone_wire.text import SERVER_CAVEAT

SCHEMA = "isochrone.explain/1"
_HALF_COVERAGE = 0.5
_MANY_FAILURES = 0.02
_SLIGHT = 0.01
# From this correlation on the difference of two values varies less than either of them.
_ALIKE = 0.5
_NEVER = 1e6
_LEAST_SHARE = 1e-4

_PHASE_NAMES = {
    "dns": "name lookup",
    "tcp": "TCP handshake",
    "tls": "TLS handshake",
    "rtt": "the request's round trip",
    "server": "the server",
}


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph of the explanation of a differential: a topic of one or two words, and sentences."""

    row: Differential
    topic: str
    text: str


def explanation(row: Differential, *, now_at: int) -> tuple[Paragraph, ...]:
    """Explain one differential, with ages as of `now_at` (microseconds since the epoch)."""
    freshness = notes_that_hold(
        (row.newest_at is not None, f"The newest round is {formats.age(row.newest_at, now_at=now_at)} old."),
        (row.since_at, f"The series changed at {minute(row.since_at or 0)} UTC; earlier rounds are left out."),
    )
    topics = (
        ("difference", _difference(row)),
        ("step", _step(row, now_at=now_at)),
        ("decision", _decision(row, now_at=now_at)),
        ("confidence", _confidence(row)),
        ("origin", _origins(row)),
        ("handshakes", _handshakes(row)),
        ("provider", _provider(row)),
        (row.baseline, _side(row.baseline, row.baseline_side, row.baseline_n)),
        (row.region, _side(row.region, row.region_side, row.region_n)),
        ("freshness", freshness),
        ("next steps", _next_steps(row)),
    )
    return tuple(Paragraph(row, topic, text) for topic, sentences in topics if (text := " ".join(sentences)))


def handshake_share(row: Differential, of: Callable[[Part], float | None]) -> float | None:
    """The share of name lookup and handshakes in one side's `ttft_cold`, from 0 to 1, by the medians of its parts."""
    known = {
        part.name: value for part in row.parts if part.name in differentials.ADDENDS and (value := of(part)) is not None
    }
    total = sum(known.values())
    if "server" not in known or not known.keys() & {*differentials.HANDSHAKES} or total <= 0:
        return None
    return sum(known.get(name, 0.0) for name in differentials.HANDSHAKES) / total


def rounds_needed(row: Differential) -> int | None:
    """Estimate the rounds that would decide an undecided differential if the spread stays the same; `None` if unknown.

    An interval narrows with the square root of the rounds. It has to exclude zero if the difference reaches the
    smallest one that matters, and to be below that otherwise.
    """
    if row.shift is None or row.shift_low is None or row.shift_high is None or row.margin is None:
        return None
    half = (row.shift_high - row.shift_low) / 2
    size = abs(row.shift)
    room = size if size >= row.margin else row.margin - size
    factor = (half / room) ** 2 if room else math.inf
    return None if factor * row.n > _NEVER else max(row.n + 1, math.ceil(1.1 * factor * row.n))


def _difference(row: Differential) -> Iterator[str]:
    noun, (less, more) = row.metric.display_name, _directions(row)
    if row.shift is None:
        yield f"The difference in {noun} of {row.target} between {row.region} and {row.baseline} is unknown."
        return
    if row.shift:
        percent = formats.alone(formats.amount_percent(row.shift_percent)).lstrip("+-")
        size = f"{_amount(row, abs(row.shift))} ({percent} %)"
        comparison = f"{size} {less if row.shift < 0 else more} from {row.region}"
        yield f"The {noun} of {row.target} is {comparison} than from {row.baseline}."
    else:
        yield f"The {noun} of {row.target} is the same from {row.region} as from {row.baseline}."
    interval = "it has no 95 % interval yet, so its direction is not known"
    if row.shift_low is not None and row.shift_high is not None:
        interval = f"its 95 % interval is {_bounds(row, row.shift_low, row.shift_high)}"
    yield f"This is the pseudomedian of the rounds' differences; {interval}."
    apart, difference = "", row.median_difference
    if difference is not None:
        apart = f": {_amount(row, abs(difference))} {less if difference < 0 else more}" if difference else ", the same"
    yield f"The medians are {_amount(row, row.region_median)} and {_amount(row, row.baseline_median)}{apart}."


def _step(row: Differential, *, now_at: int) -> Iterator[str]:
    if not differentials.has_step(row):
        return
    before, present = row.levels[-2:]
    yield f"{differentials.step_sentence(row, now_at=now_at)}."
    yield "All other figures are those of the rounds since then."
    for level, when in ((present, "since then"), (before, "before")):
        if level.low is not None and level.high is not None:
            yield f"The 95 % interval {when} is {_bounds(row, level.low, level.high)}."
    region, baseline = (
        f"from {_amount(row, old)} to {_amount(row, new)}"
        for old, new in (
            (before.region_median, present.region_median),
            (before.baseline_median, present.baseline_median),
        )
    )
    yield f"The median of {row.region} went {region}, that of {row.baseline} {baseline}."
    for level in row.levels[-3::-1]:
        until = formats.moment(level.until_at, now_at=now_at)
        yield f"Earlier, until {until}, the difference was {differentials.at_level(row, level)}."


def _decision(row: Differential, *, now_at: int) -> Iterator[str]:
    if differentials.has_step(row):
        yield f"The decision is about the rounds since {formats.moment(row.since_at or 0, now_at=now_at)}."
    smallest = f"the smallest that matters, {_amount(row, row.margin)}"
    reached = f"the interval excludes zero, and the difference is at least {smallest}"
    around = ""
    if row.shift_low is not None and row.shift_high is not None:
        bounds, size = sorted((abs(row.shift_low), abs(row.shift_high))), formats.display_unit_size(row.unit)
        decimals = formats.fitting_decimals(bounds[1] / size)
        near, far = (formats.number(bound / size, decimals=decimals) for bound in bounds)
        around = f" ({near} to {far} {formats.display_unit(row.unit)})"
    by = f"by {_amount(row, abs(row.shift or 0.0))}{around}"
    yield {
        Decision.FASTER: f"{row.region} is faster {by}: {reached}.",
        Decision.SLOWER: f"{row.region} is slower {by}: {reached}.",
        Decision.EQUIVALENT: f"The two are equivalent: the whole interval is smaller than {smallest}.",
        Decision.MIXED: f"It is mixed: {row.reason}.",
        Decision.UNDECIDED: f"It is undecided: {row.reason or 'the samples do not decide it'}.",
    }[row.decision]
    if row.provisional:
        yield "The decision is provisional: slow drift is only known from 48 hours of history on."


def _confidence(row: Differential) -> Iterator[str]:
    if row.paired:
        yield f"Both sides have a value in {counted(row.n, 'round')}; the rounds are compared in pairs."
        if row.correlation is not None:
            size = f"{'negative ' if row.correlation < 0 else ''}correlation of {abs(row.correlation):.2f}"
            effect = "which pairing removes" if row.correlation >= _ALIKE else "so pairing removes little"
            yield f"Their values in the same round have a {size}, {effect}."
    else:
        yield (
            f"The two have no rounds in common: {counted(row.region_n, 'round')} of {row.region} are compared with "
            f"{row.baseline_n} of {row.baseline}, unpaired."
        )
    if row.n_eff is not None and row.n_eff < row.n - 0.5:
        worth = formats.number(row.n_eff, decimals=0)
        yield f"{counted(row.n, 'round')} ≈ {worth} independent, because neighbouring rounds resemble each other."
    if row.faster_probability is not None:
        # No number of rounds proves a probability of 0 or 1.
        if 0 < row.faster_probability < 1:
            yield f"{row.region} is better in a round with a probability of {100 * row.faster_probability:.1f} %."
        else:
            yield f"{row.region} was better in {'every' if row.faster_probability else 'no'} round."
    if row.q_value is not None:
        share = f"at most {100 * row.q_value:.2g} %" if row.q_value >= _LEAST_SHARE else "less than 0.01 %"
        yield (
            f"Of the differences of the whole plan in this window that are at least as clear as this one, {share} are "
            "expected to be chance (the false-discovery rate)."
        )


def _origins(row: Differential) -> Iterator[str]:
    parts = {part.name: part for part in row.parts if part.name in differentials.ADDENDS}
    if not parts:
        if row.network_shift is not None and row.server_shift is not None:
            yield _network_and_server(row.network_shift, row.server_shift)
            yield f"The server's part is {SERVER_CAVEAT}."
        return
    what = (
        "A first token over a fresh connection (ttft_cold)"
        if parts.keys() & {*differentials.HANDSHAKES}
        else "A first token (ttft)"
    )
    phases = ", ".join(f"{_PHASE_NAMES[name]} {_part(part)}" for name, part in parts.items())
    yield f"{what} takes {_more(differentials.added(row, differentials.ADDENDS))} in total: {phases}."
    yield _network_and_server(differentials.added(row, differentials.NETWORK), differentials.added(row, ("server",)))
    yield f"The server's part is {SERVER_CAVEAT}."
    absent = [name for name in differentials.ADDENDS if name not in parts]
    if absent:
        yield f"These requests do not have the phases {', '.join(absent)}."


def _network_and_server(network: float, server: float) -> str:
    total = abs(network) + abs(server)
    share = abs(network) / total if total else 0.0
    if not total:
        attribution = "there is no difference to explain"
    elif not _SLIGHT <= share <= 1 - _SLIGHT:
        attribution = f"all of it comes from the {'network' if share > _SLIGHT else 'server'}"
    elif network * server < 0:
        larger = "network" if share > 0.5 else "server"  # noqa: PLR2004  # half
        attribution = f"one takes more, the other less, and the part of the {larger} is larger"
    else:
        attribution = f"{100 * share:.0f} % network, {100 * (1 - share):.0f} % server"
    return f"The network takes {_more(network)}, the server {_more(server)}: {attribution}."


def _handshakes(row: Differential) -> Iterator[str]:
    region = handshake_share(row, lambda part: part.region_median)
    baseline = handshake_share(row, lambda part: part.baseline_median)
    if region is None or baseline is None:
        return
    yield (
        f"Name lookup and handshakes are {100 * region:.1f} % of ttft_cold from {row.region} and "
        f"{100 * baseline:.1f} % from {row.baseline}."
    )
    if row.metric is not Metric.TTFT_COLD:
        more = _more(differentials.added(row, differentials.HANDSHAKES))
        yield f"They take {more} from {row.region}; an open connection avoids them."


def _provider(row: Differential) -> Iterator[str]:
    own, edge, server = (differentials.part_of(row, name) for name in ("provider", "edge", "server"))
    if own is None:
        if row.parts:
            yield "The provider does not report its own processing time."
        return
    yield f"The provider reports that it takes {_part(own)}, in {counted(own.n, 'round')}."
    if edge is not None:
        network = _more(differentials.added(row, differentials.NETWORK))
        yield f"In three parts: the network takes {network}, the way behind the edge {_part(edge)},"
        yield f"and the provider {_more(own.shift)}."
    elif server is not None:
        yield f"As measured by the agents, the server takes {_more(server.shift)}."


def _side(region: str, side: Side, rounds: int) -> Iterator[str]:
    yield f"{counted(rounds, 'round')} of {region} {'has' if rounds == 1 else 'have'} a value."
    if side.coverage is not None:
        yield f"{100 * side.coverage:.1f} % of the planned rounds have a sample."
    if side.failures is not None:
        value, low, high = (
            formats.number(100 * of) for of in (side.failures.value, side.failures.low, side.failures.high)
        )
        yield f"Of {counted(side.failures.n, 'probe')}, {value} % failed (95 % interval {low} … {high} %)."


def _next_steps(row: Differential) -> Iterator[str]:
    if row.decision is not Decision.UNDECIDED:
        return
    yield from _next_steps_for_side(row.baseline, row.baseline_n, row.baseline_side)
    yield from _next_steps_for_side(row.region, row.region_n, row.region_side)
    needed = rounds_needed(row)
    least = max(row.rounds_needed, ROUNDS_NEEDED)
    if row.paired and row.n < least:
        missing = counted(least - row.n, "more round")
        yield f"A decision needs {missing} with a value on both sides: wait or use a longer --window."
    elif needed is not None and needed > row.n:
        yield f"With the current spread, about {needed} rounds would decide it: wait or use a longer --window."


def _next_steps_for_side(region: str, rounds: int, side: Side) -> Iterator[str]:
    if not rounds:
        yield f"There are no values from {region}: see `isochrone vantages`."
    elif side.coverage is not None and side.coverage < _HALF_COVERAGE:
        yield f"Less than half of the rounds from {region} have a sample: see `isochrone coverage --region {region}`."
    if side.failures is not None and side.failures.value > _MANY_FAILURES:
        yield f"Probes from {region} fail: see `isochrone samples --region {region}`."


def _directions(row: Differential) -> tuple[str, str]:
    """The words for a negative and a positive difference of the row's metric."""
    return ("lower", "higher") if row.metric.more_is_better else ("shorter", "longer")


def _amount(row: Differential, value: float | None) -> str:
    return f"{formats.number(formats.displayed(value, row.unit))} {formats.display_unit(row.unit)}"


def _bounds(row: Differential, low: float, high: float) -> str:
    size = formats.display_unit_size(row.unit)
    return range_text(low / size, high / size, unit=formats.display_unit(row.unit), words=_directions(row))


def range_text(low: float, high: float, *, unit: str, words: tuple[str, str]) -> str:
    """`31 to 42 ms shorter`, or `2 ms shorter to 5 ms longer`: bounds in words instead of signs.

    `words` are those for a negative and a positive number.
    """
    nearer, farther = sorted((abs(low), abs(high)))
    decimals, (less, more) = formats.fitting_decimals(farther), words
    if not round(farther, decimals):
        return f"0 {unit}"
    first, last, below, above = (formats.number(of, decimals=decimals) for of in (nearer, farther, -low, high))
    if low < 0 < high:
        return f"{below} {unit} {less} to {above} {unit} {more}"
    return f"{last if first == last else f'{first} to {last}'} {unit} {less if low < 0 else more}"


def _more(us: float, *, decimals: int | None = None) -> str:
    """`178 ms more`, `36 ms less`, or `the same time` if the difference rounds to zero."""
    text = formats.number(formats.milliseconds(abs(us)), decimals=decimals)
    if not float(text.replace(formats.UNKNOWN, "0")):
        return "the same time"
    return f"{text} ms {'less' if us < 0 else 'more'}"


def _part(part: Part) -> str:
    """`178 ms more (177 to 179 ms more)`."""
    if part.low is None or part.high is None:
        return f"{_more(part.shift)} (no interval)"
    low, high = part.low / 1000, part.high / 1000
    decimals = formats.fitting_decimals(max(abs(low), abs(high)))
    return f"{_more(part.shift, decimals=decimals)} ({range_text(low, high, unit='ms', words=('less', 'more'))})"


def explanation_page(answer: DifferentialList, *, now_at: int) -> Page[Paragraph]:
    """The explanations for people: a table of topics and sentences per differential, with ages as of `now_at`."""
    return Page(
        schema=SCHEMA,
        title=f"rounds between {formats.between(answer.window)}",
        fields=(),
        columns=(
            Column("topic", lambda row: row.topic, wide=True),
            Column("explanation", lambda row: row.text, prose=True),
        ),
        rows=tuple(one for row in answer.differentials for one in explanation(row, now_at=now_at)),
        group=lambda row: _title(row.row),
    )


def phases_page(answer: DifferentialList) -> Page[tuple[Differential, Part]]:
    """The contribution of each phase, for people."""

    def interval(row: tuple[Differential, Part]) -> str | formats.Amount:
        low, high = formats.milliseconds(row[1].low), formats.milliseconds(row[1].high)
        return formats.UNKNOWN if low is None or high is None else formats.amount_interval(low, high, signed=True)

    return Page(
        schema=SCHEMA,
        title="contribution of each phase to the first token; edge and provider are the parts of the server's",
        fields=(),
        columns=(
            Column("phase", lambda row: row[1].name, wide=True),
            Column(
                "baseline", lambda row: formats.amount_ms(row[1].baseline_median), unit="ms", scale="phase", priority=1
            ),
            Column("region", lambda row: formats.amount_ms(row[1].region_median), unit="ms", scale="phase", priority=1),
            Column("difference", lambda row: formats.amount_ms(row[1].shift, signed=True), unit="ms", scale="phase"),
            Column("interval", interval, unit="95 %, ms", scale="phase"),
            Column("rounds", lambda row: str(row[1].n), priority=2),
        ),
        rows=tuple((row, part) for row in answer.differentials for part in row.parts),
        group=lambda row: _title(row[0]),
    )


def records_page(answer: DifferentialList, *, metric: Metric, now_at: int) -> Page[Differential]:
    """The differentials for programs: all fields, and the explanation in `story`, a list of texts with their topic."""

    def sentences(row: Differential) -> list[str]:
        return [f"{one.topic}: {one.text}" for one in explanation(row, now_at=now_at)]

    return differentials.page(answer, answer.differentials, metric=metric, now_at=now_at, also={"story": sentences})


def _title(row: Differential) -> str:
    return f"{row.target}: {row.metric} from {row.region} against {row.baseline}"
