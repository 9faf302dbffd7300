"""The contribution of each phase to the differences in time to first token."""

from collections.abc import Callable

from isochrone_client.formats import UNKNOWN, between, milliseconds, number
from isochrone_client.pages.difference_explanation import ADDENDS, part_of
from isochrone_client.pages.differentials import select_rows
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import Differential, DifferentialList

SCHEMA = "isochrone.origins/1"
_NOTES = (
    "all: the sum of the phases, close to the shift of ttft_cold (of ttft if connections are kept open)",
    "provider: the difference in the provider's own processing time, a part of the server's",
)


def page(answer: DifferentialList) -> Page[Differential]:
    """The page of all differentials with known phases, one table per region."""
    return Page(
        schema=SCHEMA,
        title=f"contribution of the phases, rounds between {between(answer.window)}",
        fields=(),
        columns=(
            Column(heading="target", text=lambda row: row.target, wide=True),
            *(_shift(name) for name in ADDENDS),
            Column(heading="all", unit="ms", text=_whole),
            _shift("provider"),
            Column(heading="rounds", text=lambda row: str(max(part.n for part in row.parts))),
        ),
        rows=tuple(row for row in select_rows(answer, sort="shift", only=None) if row.parts),
        group=lambda row: f"{row.region} against {row.baseline}",
        notes=_NOTES,
    )


def _shift(name: str) -> Column[Differential]:
    return Column(heading=name, unit="ms", text=_of(name))


def _of(name: str) -> Callable[[Differential], str]:
    def text(row: Differential) -> str:
        part = part_of(row, name)
        return UNKNOWN if part is None else number(milliseconds(part.shift), signed=True)

    return text


def _whole(row: Differential) -> str:
    return number(milliseconds(sum(part.shift for part in row.parts if part.name in ADDENDS)), signed=True)
