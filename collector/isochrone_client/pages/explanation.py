"""Differentials in sentences: size, confidence, origin and the next steps; and the contribution of each phase."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    age,
    amount,
    amount_interval,
    between,
    display_unit,
    display_unit_size,
    displayed,
    fitting_decimals,
    milliseconds,
    moment,
    number,
    percent,
)
from isochrone_client.pages import differentials
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import Decision, Differential, DifferentialList, Level, Metric, Part, Proportion, Side
from isochrone_wire.json_format import minute
from isochrone_wire.text import SERVER_CAVEAT

FEWEST_ROUNDS = 6
"""The rounds that an interval needs."""
HANDSHAKES = ("dns", "tcp", "tls")
NETWORK = (*HANDSHAKES, "rtt")
# The phases that add up to `ttft_cold`. The parts of the server's are not added.
ADDENDS = (*NETWORK, "server")
_FULL_COVERAGE = 0.9
_HALF_COVERAGE = 0.5
_MANY_FAILURES = 0.02
_SLIGHT = 0.01
# From this correlation on the difference of two values varies less than either of them.
_ALIKE = 0.5
_NEVER = 1e6
_US_PER_MS = 1000.0
_HUNDRED = 100.0
_LEAST_SHARE = 1e-4

_PHASE_NAMES = {
    "dns": "name lookup",
    "tcp": "TCP handshake",
    "tls": "TLS handshake",
    "rtt": "the request's round trip",
    "server": "the server",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """One paragraph of an explanation: a topic of one or two words, and sentences."""

    topic: str
    text: str


def explanation(row: Differential, *, now_at: int) -> tuple[Paragraph, ...]:
    """Explain one differential, with ages as of `now_at` (microseconds since the epoch)."""
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
        ("freshness", _freshness(row, now_at=now_at)),
        ("next steps", _next_steps(row)),
    )
    paragraphs = ((topic, " ".join(sentences)) for topic, sentences in topics)
    return tuple(Paragraph(topic=topic, text=text) for topic, text in paragraphs if text)


def has_step(row: Differential) -> bool:
    """Return whether the difference changed within the window by the margin or more. A change of a side may leave the
    difference.
    """
    return len(row.levels) > 1 and abs(_step_size(row)) >= (row.margin or 0.0)


def step_sentence(row: Differential, *, now_at: int) -> str:
    """The last step of a row that has one: `+400 ms since 01:07:15: the difference is …, and was … before`."""
    before, present = row.levels[-2:]
    size, since = _signed(row, _step_size(row)), moment(present.from_at, now_at=now_at)
    return f"{size} since {since}: the difference is {_at_level(row, present)}, and was {_at_level(row, before)} before"


def _step_size(row: Differential) -> float:
    return row.levels[-1].shift - row.levels[-2].shift


def _at_level(row: Differential, level: Level) -> str:
    """`+435 ms in 12 rounds`."""
    return f"{_signed(row, level.shift)} in {_counted(level.n, 'round')}"


def part_of(row: Differential, name: str) -> Part | None:
    """The part called `name`; `None` if it is unknown."""
    return next((part for part in row.parts if part.name == name), None)


def handshake_share(row: Differential, of: Callable[[Part], float | None]) -> float | None:
    """The share of name lookup and handshakes in one side's `ttft_cold`, from 0 to 1, by the medians of its parts."""
    medians = {part.name: of(part) for part in row.parts if part.name in ADDENDS}
    known = {name: value for name, value in medians.items() if value is not None}
    total = sum(known.values())
    if "server" not in known or not known.keys() & {*HANDSHAKES} or total <= 0:
        return None
    return sum(known.get(name, 0.0) for name in HANDSHAKES) / total


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
    noun = row.metric.display_name
    less, more = ("lower", "higher") if row.metric.more_is_better else ("shorter", "longer")
    if row.shift is None or row.shift_low is None or row.shift_high is None:
        yield f"The difference in {noun} of {row.target} between {row.region} and {row.baseline} is unknown."
        return
    if row.shift:
        size = f"{_amount(row, abs(row.shift))} ({percent(row.shift_percent).lstrip('+-')} %)"
        comparison = f"{size} {less if row.shift < 0 else more} from {row.region}"
        yield f"The {noun} of {row.target} is {comparison} than from {row.baseline}."
    else:
        yield f"The {noun} of {row.target} is the same from {row.region} as from {row.baseline}."
    yield (
        "This is the pseudomedian of the rounds' differences; its 95 % interval is "
        f"{_bounds(row, row.shift_low, row.shift_high)}."
    )
    yield f"The medians are {_amount(row, row.region_median)} and {_amount(row, row.baseline_median)}{_apart(row)}."


def _apart(row: Differential) -> str:
    """`: 193 ms longer` for the difference of the medians; empty if it is unknown."""
    if row.median_difference is None:
        return ""
    size = _size(row, row.median_difference)
    return f": {size}" if row.median_difference else ", the same"


def _step(row: Differential, *, now_at: int) -> Iterator[str]:
    if not has_step(row):
        return
    before, present = row.levels[-2:]
    yield f"{step_sentence(row, now_at=now_at)}."
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
        yield f"Earlier, until {moment(level.until_at, now_at=now_at)}, the difference was {_at_level(row, level)}."


def _decision(row: Differential, *, now_at: int) -> Iterator[str]:
    if has_step(row):
        yield f"The decision is about the rounds since {moment(row.levels[-1].from_at, now_at=now_at)}."
    smallest = f"the smallest that matters, {_amount(row, row.margin)}"
    reached = f"the interval excludes zero, and the difference is at least {smallest}"
    by = f"by {_amount(row, abs(row.shift or 0.0))}{_around(row)}"
    yield {
        Decision.FASTER: f"{row.region} is faster {by}: {reached}.",
        Decision.SLOWER: f"{row.region} is slower {by}: {reached}.",
        Decision.EQUIVALENT: f"The two are equivalent: the whole interval is smaller than {smallest}.",
        Decision.MIXED: f"It is mixed: {row.reason}.",
        Decision.UNDECIDED: f"It is undecided: {row.reason or 'the samples do not decide it'}.",
    }[row.decision]


def _around(row: Differential) -> str:
    """` (180 to 204 ms)`; empty without an interval."""
    if row.shift_low is None or row.shift_high is None:
        return ""
    near, far = sorted((abs(row.shift_low), abs(row.shift_high)))
    size, decimals = display_unit_size(row.unit), fitting_decimals(far / display_unit_size(row.unit))
    bounds = f"{number(near / size, decimals=decimals)} to {number(far / size, decimals=decimals)}"
    return f" ({bounds} {display_unit(row.unit)})"


def _confidence(row: Differential) -> Iterator[str]:
    if row.paired:
        yield f"Both sides have a value in {_counted(row.n, 'round')}; the rounds are compared in pairs."
        yield from _alike(row)
    else:
        yield (
            f"The two have no rounds in common: {_counted(row.region_n, 'round')} of {row.region} are compared with "
            f"{row.baseline_n} of {row.baseline}, unpaired."
        )
    if row.n_eff is not None and row.n_eff < row.n - 0.5:
        worth = number(row.n_eff, decimals=0)
        yield f"{_counted(row.n, 'round')} ≈ {worth} independent, because neighbouring rounds resemble each other."
    if row.faster_probability is not None:
        yield _better(row.region, row.faster_probability)
    if row.q_value is not None:
        share = f"at most {_HUNDRED * row.q_value:.2g} %" if row.q_value >= _LEAST_SHARE else "less than 0.01 %"
        yield (
            f"Of the differences of the whole plan in this window that are at least as clear as this one, {share} are "
            "expected to be chance (the false-discovery rate)."
        )


def _alike(row: Differential) -> Iterator[str]:
    if row.correlation is None:
        return
    size = f"{'negative ' if row.correlation < 0 else ''}correlation of {abs(row.correlation):.2f}"
    effect = "which pairing removes" if row.correlation >= _ALIKE else "so pairing removes little"
    yield f"Their values in the same round have a {size}, {effect}."


def _better(region: str, probability: float) -> str:
    # No number of rounds proves a probability of 0 or 1.
    if not 0 < probability < 1:
        return f"{region} was better in {'every' if probability else 'no'} round."
    return f"{region} is better in a round with a probability of {_HUNDRED * probability:.1f} %."


def _origins(row: Differential) -> Iterator[str]:
    parts = {part.name: part for part in row.parts if part.name in ADDENDS}
    if not parts:
        yield from _split(row)
        return
    what = (
        "A first token over a fresh connection (ttft_cold)" if parts.keys() & {*HANDSHAKES} else "A first token (ttft)"
    )
    phases = ", ".join(f"{_PHASE_NAMES[name]} {_part(part)}" for name, part in parts.items())
    yield f"{what} takes {_more(_added(row, ADDENDS))} in total: {phases}."
    yield from _network_and_server(_added(row, NETWORK), _added(row, ("server",)))
    yield f"The server's part is {SERVER_CAVEAT}."
    absent = [name for name in ADDENDS if name not in parts]
    if absent:
        yield f"These requests do not have the phases {', '.join(absent)}."


def _added(row: Differential, names: tuple[str, ...]) -> float:
    return sum(part.shift for part in row.parts if part.name in names)


def _split(row: Differential) -> Iterator[str]:
    if row.network_shift is not None and row.server_shift is not None:
        yield from _network_and_server(row.network_shift, row.server_shift)
        yield f"The server's part is {SERVER_CAVEAT}."


def _network_and_server(network: float, server: float) -> Iterator[str]:
    yield (f"The network takes {_more(network)}, the server {_more(server)}: {_attribution(network, server)}.")


def _attribution(network: float, server: float) -> str:
    total = abs(network) + abs(server)
    if not total:
        return "there is no difference to explain"
    share = abs(network) / total
    if not _SLIGHT <= share <= 1 - _SLIGHT:
        return f"all of it comes from the {'network' if share > _SLIGHT else 'server'}"
    if network * server < 0:
        larger = "network" if share > 0.5 else "server"  # noqa: PLR2004  # half
        return f"one takes more, the other less, and the part of the {larger} is larger"
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
        added = _more(_added(row, HANDSHAKES))
        yield f"They take {added} from {row.region}; an open connection avoids them."


def _provider(row: Differential) -> Iterator[str]:
    own, edge, server = (part_of(row, name) for name in ("provider", "edge", "server"))
    if own is None:
        if row.parts:
            yield "The provider does not report its own processing time."
        return
    yield f"The provider reports that it takes {_part(own)}, in {_counted(own.n, 'round')}."
    if edge is not None:
        network = _more(_added(row, NETWORK))
        yield f"In three parts: the network takes {network}, the way behind the edge {_part(edge)},"
        yield f"and the provider {_more(own.shift)}."
    elif server is not None:
        yield f"As measured by the agents, the server takes {_more(server.shift)}."


def _side(region: str, side: Side, rounds: int) -> Iterator[str]:
    yield f"{_counted(rounds, 'round')} of {region} {'has' if rounds == 1 else 'have'} a value."
    if side.coverage is not None:
        yield f"{_HUNDRED * side.coverage:.1f} % of the planned rounds have a sample."
    if side.failures is not None:
        yield f"{_failures(side.failures)}"


def _failures(failures: Proportion) -> str:
    bounds = f"{number(_HUNDRED * failures.low)} … {number(_HUNDRED * failures.high)} %"
    return f"Of {_counted(failures.n, 'probe')}, {number(_HUNDRED * failures.value)} % failed (95 % interval {bounds})."


def _freshness(row: Differential, *, now_at: int) -> Iterator[str]:
    if row.newest_at is not None:
        yield f"The newest round is {age(row.newest_at, now_at=now_at)} old."
    if row.since_at is not None:
        yield f"The series changed at {minute(row.since_at)} UTC; earlier rounds are left out."


def _next_steps(row: Differential) -> Iterator[str]:
    if row.decision is not Decision.UNDECIDED:
        return
    for region, rounds, side in (
        (row.baseline, row.baseline_n, row.baseline_side),
        (row.region, row.region_n, row.region_side),
    ):
        yield from _next_steps_for_side(region, rounds, side)
    needed = rounds_needed(row)
    least = max(row.rounds_needed, FEWEST_ROUNDS)
    if row.paired and row.n < least:
        missing = _counted(least - row.n, "more round")
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


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _amount(row: Differential, value: float | None) -> str:
    """A quantity of the row's metric with its unit."""
    return f"{number(displayed(value, row.unit))} {display_unit(row.unit)}"


def _size(row: Differential, value: float) -> str:
    """A difference in the row's metric, with its direction in a word: `193 ms longer`."""
    less, more = ("lower", "higher") if row.metric.more_is_better else ("shorter", "longer")
    return f"{_amount(row, abs(value))} {less if value < 0 else more}"


def _signed(row: Differential, value: float) -> str:
    """A difference in the row's metric, with its sign and unit."""
    return f"{number(displayed(value, row.unit), signed=True)} {display_unit(row.unit)}"


def _bounds(row: Differential, low: float, high: float) -> str:
    less, more = ("lower", "higher") if row.metric.more_is_better else ("shorter", "longer")
    size = display_unit_size(row.unit)
    return range_text(low / size, high / size, unit=display_unit(row.unit), words=(less, more))


def range_text(low: float, high: float, *, unit: str, words: tuple[str, str]) -> str:
    """`31 to 42 ms shorter`, or `2 ms shorter to 5 ms longer`: bounds in words instead of signs.

    `words` are those for a negative and a positive number.
    """
    decimals = fitting_decimals(max(abs(low), abs(high)))
    nearer, farther = sorted((abs(low), abs(high)))
    less, more = words
    if not round(farther, decimals):
        return f"0 {unit}"
    if low < 0 < high:
        return f"{number(-low, decimals=decimals)} {unit} {less} to {number(high, decimals=decimals)} {unit} {more}"
    first, last = number(nearer, decimals=decimals), number(farther, decimals=decimals)
    return f"{last if first == last else f'{first} to {last}'} {unit} {less if low < 0 else more}"


def _more(us: float, *, decimals: int | None = None) -> str:
    """`178 ms more`, `36 ms less`, or `the same time` if the difference rounds to zero."""
    text = number(abs(us) / _US_PER_MS, decimals=decimals)
    if not float(text.replace(UNKNOWN, "0")):
        return "the same time"
    return f"{text} ms {'less' if us < 0 else 'more'}"


def _part(part: Part) -> str:
    """`178 ms more (177 to 179 ms more)`."""
    if part.low is None or part.high is None:
        return f"{_more(part.shift)} (no interval)"
    low, high = part.low / _US_PER_MS, part.high / _US_PER_MS
    decimals = fitting_decimals(max(abs(low), abs(high)))
    bounds = range_text(low, high, unit="ms", words=("less", "more"))
    return f"{_more(part.shift, decimals=decimals)} ({bounds})"


SCHEMA = "isochrone.explain/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationRow:
    """One paragraph of the explanation of one differential."""

    row: Differential
    paragraph: Paragraph


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One phase of one differential."""

    row: Differential
    part: Part


def explanation_page(answer: DifferentialList, *, now_at: int) -> Page[ExplanationRow]:
    """The explanations for people: a table of topics and sentences per differential, with ages as of `now_at`."""
    return Page(
        schema=SCHEMA,
        title=f"rounds between {between(answer.window)}",
        fields=(),
        columns=(
            Column(heading="topic", text=lambda row: row.paragraph.topic, wide=True),
            Column(heading="explanation", text=lambda row: row.paragraph.text, wide=True, prose=True),
        ),
        rows=tuple(
            ExplanationRow(row=row, paragraph=paragraph)
            for row in answer.differentials
            for paragraph in explanation(row, now_at=now_at)
        ),
        group=lambda row: _title(row.row),
    )


def phases_page(answer: DifferentialList) -> Page[PhaseRow]:
    """The contribution of each phase, for people."""
    return Page(
        schema=SCHEMA,
        title="contribution of each phase to the first token; edge and provider are the parts of the server's",
        fields=(),
        columns=_PHASE_COLUMNS,
        rows=tuple(PhaseRow(row=row, part=part) for row in answer.differentials for part in row.parts),
        group=lambda phase: _title(phase.row),
    )


def records_page(answer: DifferentialList, *, metric: Metric, now_at: int) -> Page[Differential]:
    """The differentials for programs: all fields, and the explanation in `story`, a list of texts with their topic."""

    def sentences(row: Differential) -> list[str]:
        return [f"{paragraph.topic}: {paragraph.text}" for paragraph in explanation(row, now_at=now_at)]

    rows = answer.differentials
    return differentials.page(answer, rows, metric=metric, now_at=now_at, also={"story": sentences})


def _title(row: Differential) -> str:
    return f"{row.target}: {row.metric} from {row.region} against {row.baseline}"


def _ms(of: Callable[[Part], float | None], *, signed: bool = False) -> Callable[[PhaseRow], Amount]:
    return lambda phase: amount(milliseconds(of(phase.part)), signed=signed)


def _interval(phase: PhaseRow) -> str | Amount:
    low, high = milliseconds(phase.part.low), milliseconds(phase.part.high)
    return UNKNOWN if low is None or high is None else amount_interval(low, high, signed=True)


_PHASE_COLUMNS: tuple[Column[PhaseRow], ...] = (
    Column(heading="phase", text=lambda phase: phase.part.name, wide=True),
    Column(heading="baseline", unit="ms", text=_ms(lambda part: part.baseline_median), scale="phase", priority=1),
    Column(heading="region", unit="ms", text=_ms(lambda part: part.region_median), scale="phase", priority=1),
    Column(heading="difference", unit="ms", text=_ms(lambda part: part.shift, signed=True), scale="phase"),
    Column(heading="interval", unit="95 %, ms", text=_interval, scale="phase"),
    Column(heading="rounds", text=lambda phase: str(phase.part.n), priority=2),
)
