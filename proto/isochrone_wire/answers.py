"""Value classes of the collector's answers to readers: what all have in common, and differentials.

Units as in `isochrone_wire.model`. The values of other questions are in `fleet`, `insights` and `routes`, because to
make a class takes half a millisecond, and a command has one kind of answer.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from isochrone_wire.text import same_name


class _AnySpelling(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Accept `-` in place of `_`, or `_` in place of `-`, and any case."""
        name = same_name(str(value), cls)
        return None if name is None else cls(name)


class Metric(_AnySpelling):
    """The metrics that can be compared: durations in microseconds, and `TOKENS_PER_SECOND`, a rate."""

    TTFT = "ttft"
    TTFT_COLD = "ttft_cold"
    TTFAT = "ttfat"
    E2E = "e2e"
    TOKENS_PER_SECOND = "tokens_per_second"
    CONNECT = "connect"
    RTT = "rtt"

    @property
    def display_name(self) -> str:
        """The name of the metric in a sentence."""
        return _METRIC_NAMES[self]

    @property
    def unit(self) -> str:
        """`us`, or `tokens/s` for the one rate."""
        return "tokens/s" if self is Metric.TOKENS_PER_SECOND else "us"

    @property
    def includes_request(self) -> bool:
        """True for latencies that contain the request: they have a network part, and a timeout limits them."""
        return self in (Metric.TTFT, Metric.TTFT_COLD, Metric.TTFAT, Metric.E2E)

    @property
    def more_is_better(self) -> bool:
        """True for rates."""
        return self is Metric.TOKENS_PER_SECOND


_METRIC_NAMES = {
    Metric.TTFT: "time to first token",
    Metric.TTFT_COLD: "time to first token over a fresh connection",
    Metric.TTFAT: "time to the first token of the answer",
    Metric.E2E: "time to the last token",
    Metric.TOKENS_PER_SECOND: "speed",
    Metric.CONNECT: "time to connect",
    Metric.RTT: "round-trip time",
}


class Decision(StrEnum):
    """The decision on a region relative to the baseline. `MIXED`: medians or most rounds disagree with the centre."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    MIXED = "mixed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The half-open span of rounds [from_at, until_at) that an answer covers."""

    from_at: int
    until_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The samples of a query. Empty fields do not restrict; `targets` may be shell-style patterns."""

    window: Window
    regions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A nearest-rank quantile in the window, with the distribution-free 95 % interval of the long-run level (`None`:
    too few values; one above the median without a week of history has no `high`: it is at least `low`). `n_eff`
    independent values have as wide an interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n_eff: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportion:
    """A share of n trials, with the 95 % Wilson interval of the long-run level; `n_eff` as in `Quantile`."""

    value: float
    low: float
    high: float
    n: int
    n_eff: float | None = None


class Source(StrEnum):
    """The data an answer was computed from: samples, or summaries, which are kept longer (relative error 1 %)."""

    SAMPLES = "samples"
    SUMMARIES = "summaries"


class Order(_AnySpelling):
    """The ranking of a leaderboard: by a metric, by price, or by speed per price."""

    TTFT = "ttft"
    TTFT_COLD = "ttft-cold"
    TTFAT = "ttfat"
    E2E = "e2e"
    TOKENS_PER_SECOND = "tokens-per-second"
    TOKENS_PER_USD = "tokens-per-usd"
    PRICE = "price"
    SUCCESS = "success"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One region of a differential: rounds with a value, recorded share of the planned ones, failed share of probes,
    and the share that is `left_out` of those that succeeded, because the vantage was busy.
    """

    n: int = 0
    coverage: float | None = None
    failures: Proportion | None = None
    left_out: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The contribution of one phase (`dns`, `tcp`, `tls`, `rtt`, `server`) to a differential with its 95 % interval,
    and the medians of both sides; in microseconds, over the n rounds in which both sides have all phases. `provider` is
    the time that the provider reports, `edge` the rest of the server's part.
    """

    name: str
    shift: float
    low: float | None = None
    high: float | None = None
    baseline_median: float | None = None
    region_median: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of a differential, between two steps: n rounds, the shift with its 95 % interval, and both medians."""

    from_at: int
    until_at: int
    n: int
    shift: float
    low: float | None = None
    high: float | None = None
    baseline_median: float
    region_median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Differential:
    """Region minus baseline for one target and metric, paired by round.

    `shift`, the pseudomedian of the rounds' differences, with its 95 % interval is in `unit`, as are `margin` and
    `median_difference`, the difference of the two medians; `n` counts rounds in which both regions have a value,
    `baseline_n` and `region_n` the rounds of each. A decision needs `rounds_needed`, 0 if the collector does not state
    them; `reason` explains an `undecided` or `mixed` one, and one without 48 hours of history is `provisional`.
    `correlation` is the rank correlation of the two regions' values in the same round.

    `n_eff` independent rounds have as wide an interval as these n. If `paired` is false, the regions share no rounds
    and n is 0. `faster_probability` is the probability that the region beats the baseline in a round. `margin` is the
    smallest relevant shift. `q_value` is the smallest false-discovery rate, over all targets of the plan and all
    regions, at which this difference is significant. `network_shift` and `server_shift` split the shift of a latency by
    its origin; the server's part begins behind the address that was dialled.
    If the difference changed in a step within the window, or a change point of either side is known in it, all figures
    are those of the rounds since then: `since_at` is the first of them, and `levels` has each level, oldest first.
    """

    target: str
    provider: str
    model: str
    metric: Metric
    unit: str
    baseline: str
    region: str
    baseline_median: float | None = None
    region_median: float | None = None
    shift: float | None = None
    shift_low: float | None = None
    shift_high: float | None = None
    shift_percent: float | None = None
    n: int = 0
    baseline_n: int = 0
    region_n: int = 0
    decision: Decision = Decision.UNDECIDED
    reason: str = ""
    newest_at: int | None = None
    paired: bool = True
    n_eff: float | None = None
    faster_probability: float | None = None
    margin: float | None = None
    q_value: float | None = None
    network_shift: float | None = None
    server_shift: float | None = None
    since_at: int | None = None
    baseline_side: Side = Side()
    region_side: Side = Side()
    parts: tuple[Part, ...] = ()
    levels: tuple[Level, ...] = ()
    median_difference: float | None = None
    correlation: float | None = None
    rounds_needed: int = 0
    provisional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """The reason that a region has no samples in a window, as a sentence; `region` is empty for any second region."""

    region: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentialList:
    """One differential per selected target and region; `missing` are the regions that the comparison lacks."""

    window: Window
    differentials: tuple[Differential, ...] = ()
    missing: tuple[Absence, ...] = ()
