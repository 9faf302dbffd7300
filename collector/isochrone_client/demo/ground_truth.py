"""The measured differentials beside the ground truth of the simulated world."""

from collections.abc import Sequence
from dataclasses import dataclass

from isochrone_client.demo.scenario import Model
from isochrone_client.formats import UNKNOWN, Amount, amount, amount_interval, milliseconds
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import Differential, DifferentialList

PUBLISHED = "published"
_MISSED = "missed: the true difference is outside of the interval, as it is of one 95 % interval in twenty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One differential, measured and true, in microseconds; positive values are slower than the baseline."""

    measured: Differential
    true_us: int

    @property
    def error_us(self) -> float | None:
        """Measured minus true."""
        return None if self.measured.shift is None else self.measured.shift - self.true_us

    @property
    def verdict(self) -> str:
        """`found` if the interval contains the true difference, else `missed`; unknown without an interval."""
        low, high = self.measured.shift_low, self.measured.shift_high
        if low is None or high is None:
            return UNKNOWN
        return "found" if low <= self.true_us <= high else "missed"


def compared(answer: DifferentialList, models: Sequence[Model]) -> tuple[Comparison, ...]:
    """The differentials whose ground truth is a published figure."""
    published = {
        (model["id"], region): model["differential_us"][region]
        for model in models
        for region, source in model["offset_source"].items()
        if source == PUBLISHED
    }
    return tuple(
        Comparison(measured=row, true_us=published[row.model, row.region])
        for row in answer.differentials
        if (row.model, row.region) in published
    )


def page(rows: tuple[Comparison, ...], *, load: float, cores: int) -> Page[Comparison]:
    """The page of the comparisons; `load` is the number of processes that wanted one of the `cores` of this machine."""
    is_missed = any(row.verdict == "missed" for row in rows)
    busy = f"this machine was busy: {load:.1f} processes wanted its {cores} processors, which delays probes and replies"
    return Page(
        schema="isochrone.demo-truth/1",
        title="ground truth: the published differences that the simulated world has, and the measured ones",
        fields=(),
        columns=(
            Column(heading="model", text=lambda row: row.measured.model, wide=True),
            Column(heading="true", unit="ms", text=lambda row: _ms(row.true_us), scale="ms"),
            Column(heading="measured", unit="ms", text=lambda row: _ms(row.measured.shift), scale="ms"),
            Column(heading="interval", unit="95 %, ms", text=_interval, scale="ms"),
            Column(heading="error", unit="ms", text=lambda row: _ms(row.error_us)),
            Column(
                heading="truth",
                text=lambda row: row.verdict,
                style=lambda row: "red" if row.verdict == "missed" else "green",
                wide=True,
            ),
        ),
        rows=tuple(sorted(rows, key=lambda row: row.true_us, reverse=True)),
        group=lambda row: f"{row.measured.region} against the baseline, ttft",
        notes=(*([_MISSED] if is_missed else ()), *([busy] if load > cores else ())),
    )


def _ms(us: float | None) -> Amount:
    return amount(milliseconds(us), signed=True)


def _interval(row: Comparison) -> Amount:
    low, high = row.measured.shift_low, row.measured.shift_high
    return amount_interval(milliseconds(low), milliseconds(high), signed=True)
