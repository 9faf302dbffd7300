"""Columns, footnotes and errors that several pages share.

A quantile without an interval is not shown: it has too few independent samples.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from isochrone_client.errors import BaselineError, InsufficientError, NoSamplesError
from isochrone_client.formats import UNKNOWN, Amount, amount, amount_interval, between, milliseconds, number
from isochrone_client.render.page import Column, Row
from isochrone_wire.answers import Decision, Proportion, Quantile, Window

QuantileOf = Callable[[Row], Quantile | None]
TOO_FEW_FOR_MEDIAN = f"{UNKNOWN}: too few independent samples for a 95 % interval: a median needs 6"
TOO_FEW = f"{TOO_FEW_FOR_MEDIAN}, a p95 59 and two days of history; ≥: at least"
"""The note below a table with quantiles that are not shown."""
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


def quantile_column(heading: str, of: QuantileOf[Row], *, unit: str = "ms", priority: int = 0) -> Column[Row]:
    """The column of the quantiles that are shown, in milliseconds or in the `unit` of the answer."""

    def text(row: Row) -> Amount:
        quantile = of(row)
        if quantile is None or quantile.low is None or quantile.high is not None:
            return amount(_scaled(value_of(quantile), unit))
        return Amount((_scaled(quantile.low, unit),), "≥ {}")  # without an upper bound

    return Column(heading, text, unit=unit, scale=unit, priority=priority)


def interval_column(of: QuantileOf[Row], *, unit: str = "ms", priority: int = 0) -> Column[Row]:
    """The column of the 95 % intervals of quantiles."""

    def text(row: Row) -> str | Amount:
        found = of(row)
        return amount_interval(_scaled(found.low, unit), _scaled(found.high, unit)) if found else UNKNOWN

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


def is_shown(quantile: Quantile | None) -> bool:
    """True if the quantile has an interval."""
    return quantile is not None and quantile.low is not None and quantile.high is not None


def value_of(quantile: Quantile | None) -> float | None:
    """The value of a quantile that is shown, otherwise `None`."""
    return quantile.value if quantile is not None and is_shown(quantile) else None


def without_size(reason: str) -> str:
    """The reason of a decision without the size that its row shows, so that rows can share it."""
    return reason.rpartition(" so far; ")[2]


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


def require_medians(medians: Iterable[Quantile | None], most: int) -> None:
    """Raises `InsufficientError` if no median is shown; `most` is the largest number of samples of a target."""
    if not any(map(is_shown, medians)):
        raise InsufficientError(
            f"no target has enough independent samples for a median: {most} of 16 needed, "
            "or of 6 with a week of history",
            hint="wait for more rounds, or see `isochrone samples` for why probes fail",
        )


def require_price(prices: Iterable[float | None]) -> None:
    """Raises `InsufficientError` if no target has a price."""
    if all(price is None for price in prices):
        raise InsufficientError("no target has a price", hint="set `price` of the targets in the plan")
