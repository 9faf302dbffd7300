"""Coverage: planned and recorded rounds per vantage and target, with the outcomes of the samples."""

from isochrone_client.errors import NoSamplesError
from isochrone_client.formats import UNKNOWN, age, between, share
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page, wire_fields
from isochrone_wire.fleet import Coverage, CoverageList
from isochrone_wire.model import Outcome
from isochrone_wire.queries.documents import FORMATS

FORMAT = FORMATS["CoverageList"]


def page(answer: CoverageList, *, now_at: int) -> Page[Coverage]:
    """The page of a coverage answer, one table per vantage, with ages as of `now_at`."""
    rows: tuple[Coverage, ...] = FORMAT.rows_of(answer)
    return Page(
        schema=FORMAT.schema,
        title=f"coverage, rounds between {between(answer.window)}",
        facts=FORMAT.facts(answer),
        fields=wire_fields(Coverage),
        columns=_columns(rows, now_at=now_at),
        rows=rows,
        group=lambda row: f"{row.vantage} in {row.region}",
    )


def require_rounds(answer: CoverageList) -> None:
    """Raises `NoSamplesError` if no round was planned or none was recorded."""
    if not answer.coverage:
        raise NoSamplesError(
            f"no round was planned between {between(answer.window)}",
            window=answer.window,
            hint="use another --window: `isochrone vantages` shows the newest samples of each vantage",
        )
    if not any(row.recorded for row in answer.coverage):
        raise NoSamplesError(
            f"none of {sum(row.planned for row in answer.coverage)} planned rounds has a sample",
            window=answer.window,
            hint="is an agent running? it logs `batch.stored` for each batch that it delivers",
        )


def _columns(rows: tuple[Coverage, ...], *, now_at: int) -> tuple[Column[Coverage], ...]:
    return (
        target_column(rows, lambda row: row.target),
        Column(heading="planned", unit="rounds", text=lambda row: str(row.planned), priority=3),
        Column(heading="recorded", unit="rounds", text=lambda row: str(row.recorded), priority=2),
        Column(
            heading="recorded",
            unit="%",
            text=lambda row: share(row.recorded, row.planned),
            style=lambda row: "red" if 2 * row.recorded < row.planned else "",
        ),
        Column(heading="outcomes", text=_outcomes, wide=True, prose=True, priority=1),
        Column(heading="newest", unit="ago", text=lambda row: age(row.newest_at, now_at=now_at), priority=4),
    )


def _outcomes(row: Coverage) -> str:
    """`ok 1402, timed_out 3`: `ok` first, then the others, most frequent first."""
    ordered = sorted(row.outcomes.items(), key=lambda item: (item[0] != Outcome.OK, -item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered) or UNKNOWN
