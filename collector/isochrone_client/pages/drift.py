"""Drift: lasting changes of targets per region and metric."""

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import Amount, amount, amount_percent, between, milliseconds
from isochrone_client.pages.insufficient import no_samples
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.answers import Metric
from isochrone_wire.insights import DriftEvent, DriftList
from isochrone_wire.json_format import minute
from isochrone_wire.queries.documents import FORMATS

FORMAT = FORMATS["DriftList"]
MIN_ROUNDS = 60
"""The number of rounds that a series needs before a change can be found in it."""

CHANGE = (
    "change: a new level for six rounds or more, by 10 % or more (25 % in the first three days); "
    "`isochrone diff` names a step of a difference after five rounds"
)
"""The note that states what counts as a change."""

_SMALLEST_P = 0.002
_UNIT_OF = {Metric.TOKENS_PER_SECOND: "tokens/s"}


def page(answer: DriftList) -> Page[DriftEvent]:
    """The page of the changes, one table per metric, newest first."""
    rows: tuple[DriftEvent, ...] = FORMAT.rows_of(answer)
    return Page(
        schema=FORMAT.schema,
        title=f"lasting changes between {between(answer.window)}",
        facts=FORMAT.facts(answer),
        fields=wire_fields(DriftEvent),
        columns=(target_column(rows, lambda row: row.target), *_COLUMNS),
        rows=rows,
        group=lambda row: f"{row.metric}, {_unit(row.metric)}",
        notes=(watched_summary(answer), CHANGE),
    )


def watched_summary(answer: DriftList) -> str:
    """The number of series watched, and of those with too few rounds."""
    series = f"{answer.watched} series watched"
    if not answer.too_short:
        return series
    return f"{series}; {answer.too_short} more had fewer than {MIN_ROUNDS} rounds in the window"


def require_watched(answer: DriftList) -> None:
    """Raises `InsufficientError` if no series has enough rounds to find a change."""
    if answer.events or answer.watched:
        return
    if answer.too_short:
        raise InsufficientError(
            f"none of {answer.too_short} series has the {MIN_ROUNDS} rounds needed to find a change",
            hint="wait for more rounds or use a longer --window",
        )
    raise no_samples(answer.window)


def _unit(metric: Metric) -> str:
    return _UNIT_OF.get(metric, "ms")


def _value(row: DriftEvent, value: float) -> Amount:
    return amount(value if row.metric in _UNIT_OF else milliseconds(value))


def _colour(row: DriftEvent) -> str:
    return "red" if (row.change_percent > 0) != row.metric.more_is_better else "green"


def _p(row: DriftEvent) -> str:
    return f"≤ {_SMALLEST_P}" if row.p_value <= _SMALLEST_P else f"{row.p_value:.3f}"


_COLUMNS: tuple[Column[DriftEvent], ...] = (
    Column(heading="region", text=lambda row: row.region, wide=True),
    Column(heading="since", unit="UTC", text=lambda row: minute(row.changed_at)),
    Column(heading="before", text=lambda row: _value(row, row.before), scale="level", priority=2),
    Column(heading="after", text=lambda row: _value(row, row.after), scale="level", priority=1),
    Column(heading="change", unit="%", text=lambda row: amount_percent(row.change_percent), style=_colour),
    Column(heading="p", text=_p, priority=3),
    Column(heading="rounds", unit="before", text=lambda row: str(row.n_before), priority=4),
    Column(heading="rounds", unit="after", text=lambda row: str(row.n_after), priority=4),
)
