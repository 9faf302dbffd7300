"""The measured differentials beside the ground truth of the simulated world."""

from dataclasses import dataclass

from isochrone_client.demo.scenario import World
from isochrone_client.formats import UNKNOWN, amount, amount_interval, milliseconds
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import DifferentialList

PUBLISHED = "published"
_MISSED = "missed: the true difference is outside of the interval, as it is of one 95 % interval in twenty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One differential, measured and true, in microseconds; positive values are slower than the baseline."""

    model: str
    region: str
    shift: float | None
    low: float | None
    high: float | None
    true_us: int

    @property
    def error_us(self) -> float | None:
        """Measured minus true."""
        return None if self.shift is None else self.shift - self.true_us

    @property
    def verdict(self) -> str:
        """`found` if the interval contains the true difference, else `missed`; unknown without an interval."""
        if self.low is None or self.high is None:
            return UNKNOWN
        return "found" if self.low <= self.true_us <= self.high else "missed"


def compared(answer: DifferentialList, world: World) -> tuple[Comparison, ...]:
    """The differentials whose ground truth is a published figure."""
    models = {model.name: model for model in world.models}
    return tuple(
        Comparison(
            model=row.model,
            region=row.region,
            shift=row.shift,
            low=row.shift_low,
            high=row.shift_high,
            true_us=models[row.model].differential_us[row.region],
        )
        for row in answer.differentials
        if row.model in models and models[row.model].source.get(row.region) == PUBLISHED
    )


def page(rows: tuple[Comparison, ...], *, load: float, cores: int) -> Page[Comparison]:
    """The page of the comparisons; `load` is the number of processes that wanted one of the `cores` of this machine."""
    is_missed = any(row.verdict == "missed" for row in rows)
    busy = f"this machine was busy: {load:.1f} processes wanted its {cores} processors, which delays probes and replies"
    return Page(
        schema="isochrone.demo-truth/1",
        title="ground truth: the published differences that the simulated world has, and the measured ones",
        fields=(),
        columns=_COLUMNS,
        rows=tuple(sorted(rows, key=lambda row: row.true_us, reverse=True)),
        group=lambda row: f"{row.region} against the baseline, ttft",
        notes=(*([_MISSED] if is_missed else ()), *([busy] if load > cores else ())),
    )


_COLUMNS: tuple[Column[Comparison], ...] = (
    Column(heading="model", text=lambda row: row.model, wide=True),
    Column(heading="true", unit="ms", text=lambda row: amount(milliseconds(row.true_us), signed=True), scale="ms"),
    Column(heading="measured", unit="ms", text=lambda row: amount(milliseconds(row.shift), signed=True), scale="ms"),
    Column(
        heading="interval",
        unit="95 %, ms",
        text=lambda row: amount_interval(milliseconds(row.low), milliseconds(row.high), signed=True),
        scale="ms",
    ),
    Column(heading="error", unit="ms", text=lambda row: amount(milliseconds(row.error_us), signed=True)),
    Column(
        heading="truth",
        text=lambda row: row.verdict,
        style=lambda row: "red" if row.verdict == "missed" else "green",
        wide=True,
    ),
)
