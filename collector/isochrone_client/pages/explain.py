"""Differentials explained: sentences for people, all fields for programs."""

from collections.abc import Callable
from dataclasses import dataclass

from isochrone_client.formats import UNKNOWN, Amount, amount, amount_interval, between, milliseconds
from isochrone_client.pages import differentials
from isochrone_client.pages.difference_explanation import Paragraph, explanation
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import Differential, DifferentialList, Metric, Part

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


def page(answer: DifferentialList, *, now_at: int) -> Page[ExplanationRow]:
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
        group=lambda row: _heading(row.row),
    )


def phases_page(answer: DifferentialList) -> Page[PhaseRow]:
    """The contribution of each phase, for people."""
    return Page(
        schema=SCHEMA,
        title="contribution of each phase to the first token; edge and provider are the parts of the server's",
        fields=(),
        columns=_PHASE_COLUMNS,
        rows=tuple(PhaseRow(row=row, part=part) for row in answer.differentials for part in row.parts),
        group=lambda phase: _heading(phase.row),
    )


def records_page(answer: DifferentialList, *, metric: Metric, now_at: int) -> Page[Differential]:
    """The differentials for programs: all fields, and the explanation in `story`, a list of texts with their topic."""

    def sentences(row: Differential) -> list[str]:
        return [f"{paragraph.topic}: {paragraph.text}" for paragraph in explanation(row, now_at=now_at)]

    rows = answer.differentials
    return differentials.page(answer, rows, metric=metric, now_at=now_at, also={"story": sentences})


def _heading(row: Differential) -> str:
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
