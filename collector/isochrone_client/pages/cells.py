"""Columns, footnotes and errors that several pages share.

A quantile is shown from the first sample on: without an interval as `260?`, or as `max of 9: 667` if so few samples
make a percentile their maximum. In place of the interval is the number of independent samples of those that it needs.
The live page has the same rule in `certainty.js`.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from isochrone_client.errors import BaselineError, InsufficientError, NoSamplesError
from isochrone_client.formats import UNKNOWN, Amount, amount, amount_interval, between, milliseconds, number
from isochrone_client.render.page import Column, Row
from isochrone_wire.answers import Decision, Proportion, Quantile, Window

QuantileOf = Callable[[Row], Quantile | None]
EARLY = (
    "260?, -12?: no 95 % interval yet, and the direction of a difference is not known (a median needs 6 independent "
    "samples, a p95 59 and two days of history); 3 of 6: those so far; max of 9: the p95 of fewer than 20 samples"
)
"""The note below a table with quantiles or differences that have no interval."""
PROVISIONAL = "provisional: less than 48 hours of history"
SUMMARISED = "from hourly summaries: percentiles are exact to within 1 %"
PROVIDERS = "providers of targets"
"""The name of what a shortened target no longer has."""
DECISION_STYLES = {
    Decision.FASTER: "green",
    Decision.SLOWER: "red",
    Decision.MIXED: "yellow",
    Decision.UNDECIDED: "dim",
}
MORE_ROUNDS = "more rounds narrow the intervals: wait or use a longer --window; see `isochrone coverage`"

FEW_LEFT_OUT = 0.1
"""The share of probes that are not compared from which on it is noted."""

# Every share of a sample is that of a whole number, but for rounding.
_MEDIAN, _ERROR, _ROUNDING = 0.5, 0.05, 1e-9
_PROVIDER = re.compile(r"(?<![^ ])[A-Za-z0-9][\w.-]*/(?=[\w.-])")


def target_column(
    rows: Sequence[Row],
    of: Callable[[Row], str],
    *,
    mark: Callable[[Row, str], str] = lambda _row, name: name,
    reserved: int | None = None,
) -> Column[Row]:
    """The column of the targets of `rows`; on a narrow screen without their providers, where the models differ.

    `mark` adds the mark of a footnote to a name.
    """
    models = Counter(model_part(name) for name in {of(row) for row in rows})

    def short(row: Row) -> str:
        model = model_part(of(row))
        return mark(row, model if models[model] == 1 else of(row))

    return Column(
        "target", lambda row: mark(row, of(row)), wide=True, short=short, short_of=PROVIDERS, reserved=reserved
    )


def model_part(target: str) -> str:
    """The name of a target without its provider."""
    return target.partition("/")[2] or target


def sentence_column(heading: str, of: Callable[[Row], str], **more: Any) -> Column[Row]:  # noqa: ANN401  # as Column
    """A column of sentences, on a narrow screen without the providers of their targets: `kimi-k2.5` alone."""
    return Column(heading, of, prose=True, short=lambda row: _PROVIDER.sub("", of(row)), short_of=PROVIDERS, **more)


def quantile_column(
    heading: str,
    of: QuantileOf[Row],
    *,
    share: float = _MEDIAN,
    n: Callable[[Row], int] = lambda _row: 0,
    unit: str = "ms",
    priority: int = 0,
) -> Column[Row]:
    """The column of quantiles in milliseconds or in the `unit` of the answer; those above the median have n samples."""

    def text(row: Row) -> Amount:
        quantile = of(row)
        if quantile is None:
            return amount(None)
        return Amount((_scaled(quantile.value, unit),), pattern_of(quantile, share=share, n=n(row)))

    def style(row: Row) -> str:
        return "" if has_interval(of(row)) else "dim"

    return Column(heading, text, unit=unit, scale=unit, priority=priority, style=style)


def interval_column(of: QuantileOf[Row], *, share: float = _MEDIAN, unit: str = "ms", priority: int = 0) -> Column[Row]:
    """The column of the 95 % intervals of quantiles, or of what they have of the samples that an interval needs."""

    def text(row: Row) -> str | Amount:
        found = of(row)
        if found is None:
            return UNKNOWN
        low, high = _scaled(found.low, unit), _scaled(found.high, unit)
        if low is not None and high is None:
            return Amount((low,), "≥ {}")
        return progress_of(found, share=share) or amount_interval(low, high)

    return Column("interval", text, unit=f"95 %, {unit}" if unit == "ms" else "95 %", scale=unit, priority=priority)


def _scaled(value: float | None, unit: str) -> float | None:
    return milliseconds(value) if unit == "ms" else value


def share_columns(heading: str, of: Callable[[Row], Proportion | None]) -> tuple[Column[Row], Column[Row]]:
    """The columns of a share in per cent and of its 95 % interval."""

    def bounds(row: Row) -> str:
        found = of(row)
        return f"{percentage(found.low)} … {percentage(found.high)}" if found else UNKNOWN

    return (
        Column(heading, lambda row: percentage(found.value) if (found := of(row)) else UNKNOWN, unit="%"),
        Column("interval", bounds, unit="95 %, %"),
    )


def percentage(share: float) -> str:
    """A share of 1 in per cent, with one decimal."""
    return number(100 * share, decimals=1)


def worth(n: int, n_eff: float | None) -> str:
    """The number of samples or rounds, and how many independent ones have as wide an interval: `60 ≈ 12`."""
    independent = str(n) if n_eff is None else number(n_eff, decimals=0)
    return str(n) if independent == str(n) else f"{n} ≈ {independent}"


def worth_column(
    noun: str, n: Callable[[Row], int], of: Callable[[Row], Quantile | Proportion | None], *, priority: int = 0
) -> Column[Row]:
    """The column of the numbers of samples or rounds, worth as many as the interval of a quantity counts."""

    def text(row: Row) -> str:
        found = of(row)
        return worth(n(row), found.n_eff if found else None)

    return Column(f"{noun} ≈\nindependent", text, priority=priority)


def has_interval(quantile: Quantile | None) -> bool:
    """True if both bounds of the quantile are known."""
    return quantile is not None and quantile.low is not None and quantile.high is not None


def pattern_of(quantile: Quantile, *, share: float, n: int) -> str:
    """The pattern of the value of the quantile `share` of n samples: `{}`, `{}?` or `max of 9: {}`."""
    if has_interval(quantile):
        return "{}"
    is_maximum = share > _MEDIAN and 0 < n <= math.ceil(share * n - _ROUNDING)
    return f"max of {n}: {{}}" if is_maximum else "{}?"


def progress_of(quantile: Quantile, *, share: float) -> str:
    """`3 of 6` independent samples that an interval of the quantile `share` needs; empty if it has these, or if their
    number is unknown.
    """
    if quantile.n_eff is None or has_interval(quantile):
        return ""
    needed = next(n for n in count(1) if share**n + (1 - share) ** n <= _ERROR)
    independent = math.floor(min(needed, max(0.0, quantile.n_eff)))
    return f"{independent} of {needed}" if independent < needed else ""


def are_early(quantiles: Iterable[Quantile | None]) -> bool:
    """True if any of these quantiles has no interval yet."""
    return any(one is not None and not has_interval(one) for one in quantiles)


def without_size(reason: str) -> str:
    """The reason of a decision without the size that its row shows, so that rows can share it."""
    return reason.rpartition(" so far; ")[2]


def busy(name: str, share: float) -> str:
    """The note on a region or vantage whose machine was busy."""
    return f"{name} was busy: {math.floor(100 * min(1.0, max(0.0, share)))} % of its probes are not compared"


def counted(count: int, noun: str) -> str:
    """`1 round`, `2 rounds`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def notes_that_hold(*notes: tuple[object, str]) -> Iterator[str]:
    """The notes whose condition is true."""
    return (note for holds, note in notes if holds)


class Footnotes:
    """Remarks, numbered in the order of their first use. An empty remark has no mark."""

    def __init__(self, remarks: Iterable[str]) -> None:
        self._number_of = {remark: place for place, remark in enumerate(dict.fromkeys(filter(None, remarks)), start=1)}

    def marked(self, text: str, remark: str) -> str:
        """The text with the mark of its remark: `undecided [1]`."""
        return f"{text} [{self._number_of[remark]}]" if remark else text

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks with their marks, to follow the table."""
        return tuple(f"[{place}] {remark}" for remark, place in self._number_of.items())


def require_baseline(baseline: str) -> str:
    """The plan's baseline region. Raises `BaselineError` if there is none."""
    if not baseline:
        raise BaselineError(
            "no plan has been applied yet, so there is no baseline region",
            hint="use --baseline, or apply a plan with isochrone-collector apply plan.yaml",
        )
    return baseline


def no_samples(window: Window) -> NoSamplesError:
    """The error for a window without samples."""
    return NoSamplesError(f"no samples between {between(window)}", window=window)


def require_medians(medians: Iterable[Quantile | None]) -> None:
    """Raises `InsufficientError` if no target has a median."""
    if all(median is None for median in medians):
        raise InsufficientError(
            "no sample of any target has a value",
            hint="wait for more rounds, or see `isochrone samples` for why probes fail",
        )


def require_price(prices: Iterable[float | None]) -> None:
    """Raises `InsufficientError` if no target has a price."""
    if all(price is None for price in prices):
        raise InsufficientError("no target has a price", hint="set `price` of the targets in the plan")
