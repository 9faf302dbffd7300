"""The contribution of each phase to the differences in time to first token."""

from collections.abc import Callable

from isochrone_client.formats import UNKNOWN, Amount, amount, between, milliseconds
from isochrone_client.pages.difference_explanation import ADDENDS, part_of
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import Differential, DifferentialList
from isochrone_wire.queries.differential_order import select_rows
from isochrone_wire.text import SERVER_CAVEAT

SCHEMA = "isochrone.origins/1"
_SCALE = "difference"
_NOTES = (
    "all: the sum of the phases, close to the difference of ttft_cold (of ttft if connections are kept open)",
    f"server: {SERVER_CAVEAT}",
    "provider: the part of the server's that the provider reports as its own processing time; edge: the rest of it",
)


def page(answer: DifferentialList) -> Page[Differential]:
    """The page of all differentials with known phases, one table per region."""
    rows = tuple(row for row in select_rows(answer) if row.parts)
    return Page(
        schema=SCHEMA,
        title=f"contribution of the phases, rounds between {between(answer.window)}",
        fields=(),
        columns=(
            target_column(rows, lambda row: row.target),
            *(_shift(name) for name in ADDENDS),
            Column(heading="all", unit="ms", text=_whole, scale=_SCALE),
            _shift("edge"),
            _shift("provider"),
            Column(heading="rounds", text=lambda row: str(max(part.n for part in row.parts)), priority=2),
        ),
        rows=rows,
        group=lambda row: f"{row.region} against {row.baseline}",
        notes=_NOTES,
    )


def _shift(name: str) -> Column[Differential]:
    return Column(heading=name, unit="ms", text=_of(name), scale=_SCALE, priority=1)


def _of(name: str) -> Callable[[Differential], str | Amount]:
    def text(row: Differential) -> str | Amount:
        part = part_of(row, name)
        return UNKNOWN if part is None else amount(milliseconds(part.shift), signed=True)

    return text


def _whole(row: Differential) -> Amount:
    return amount(milliseconds(sum(part.shift for part in row.parts if part.name in ADDENDS)), signed=True)
