"""The detail view of one target: its history, quantiles, phases and outcomes per region, as pages. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from isochrone_client.formats import displayed, number
from isochrone_client.live_view.answers import Detail, Question, bars_of, highest_of, points_of
from isochrone_client.pages import coverage, differentials, leaderboard
from isochrone_client.render import renderer
from isochrone_client.render.page import Column, Page, RenderOptions
from isochrone_wire.answers import Differential
from isochrone_wire.fleet import Coverage
from isochrone_wire.insights import Standing

_WIDE_BARS = 60
# The columns of a leaderboard that are the same in each row: rank, model, provider.
_OF_THE_TARGET = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """The bars of one region, and the highest median among them as text."""

    region: str
    bars: str
    highest: str


def detail_lines(detail: Detail, question: Question, *, width: int, now_at: int) -> list[Text]:
    """The lines of all sections, at most `width` columns wide, or 60 on a narrower terminal."""
    options = RenderOptions(width=width, colour=True)
    sections = [renderer("table").whole(page, options) for page in _pages(detail, question, width=width, now_at=now_at)]
    return list(Text.from_ansi("\n".join(filter(None, sections))).split("\n"))


def _pages(detail: Detail, question: Question, *, width: int, now_at: int) -> Iterator[Page[Any]]:
    yield _history(detail, question, width=width)
    yield _quantiles(detail)
    yield _phases(detail)
    yield _outcomes(detail, now_at=now_at)


def _history(detail: Detail, question: Question, *, width: int) -> Page[_History]:
    most = _WIDE_BARS if width > 2 * _WIDE_BARS else _WIDE_BARS // 2
    series = sorted(detail.series.series, key=lambda one: (one.region != detail.baseline, one.region))
    points = {one.region: points_of(one, detail.series, most=most) for one in series}
    highest = highest_of(points.values())
    rows = tuple(
        _History(
            region=region,
            bars=bars_of(of, highest=highest).rstrip() or " ",
            highest=number(displayed(highest_of([of]) or None, question.metric.unit)),
        )
        for region, of in points.items()
    )
    return Page(
        schema="",
        title=f"median {question.metric.display_name} over time, newest right",
        fields=(),
        columns=(
            Column(heading="region", text=lambda row: row.region, wide=True),
            Column(heading="bars", text=lambda row: row.bars, wide=True),
            Column(heading="highest", unit=question.scale.display_unit, text=lambda row: row.highest),
        ),
        rows=rows,
    )


def _quantiles(detail: Detail) -> Page[Standing]:
    page = leaderboard.page(detail.leaderboard)
    region: Column[Standing] = Column(heading="region", text=lambda row: row.region, wide=True)
    columns = (region, *page.columns[_OF_THE_TARGET:])
    rows = tuple(sorted(page.rows, key=lambda row: (row.region != detail.baseline, row.region)))
    return replace(page, title="quantiles", columns=columns, rows=rows, group=_ungrouped)


def _phases(detail: Detail) -> Page[Differential]:
    page = differentials.phases_page(detail.differentials)
    region: Column[Differential] = Column(heading="region", text=lambda row: row.region, wide=True)
    title = f"contribution of the phases to the difference in time to first token, against {detail.baseline}"
    return replace(page, title=title, columns=(region, *page.columns[1:]), group=_ungrouped)


def _outcomes(detail: Detail, *, now_at: int) -> Page[Coverage]:
    page = coverage.page(detail.coverage, now_at=now_at)
    columns: tuple[Column[Coverage], ...] = (
        Column(heading="region", text=lambda row: row.region, wide=True),
        Column(heading="vantage", text=lambda row: row.vantage, wide=True, priority=5),
        *page.columns[1:],
    )
    return replace(page, title="outcomes", columns=columns, group=_ungrouped)


def _ungrouped(_row: object) -> str:
    return ""
