"""What other policies would have given on the recorded rounds, beside always asking the same target."""

from collections.abc import Callable, Mapping

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, between, dollars, interval, milliseconds, number
from isochrone_client.pages.footnotes import Footnotes
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.answers import Quantile
from isochrone_wire.insights import Simulation, SimulationList
from isochrone_wire.json_format import to_json_value

SCHEMA = "isochrone.simulate/1"
_STATIC = "static:"
_BETWEEN_NOTES = "; "
_CHANGE = "change: against the first static line, or the first line where there is none"
_TOO_FEW = f"{UNKNOWN}: too few rounds for a 95 % interval: a median takes 6, a p95 59"


def page(answer: SimulationList) -> Page[Simulation]:
    """The page of a simulation, one table per region; changes are against the first static line of the region."""
    rows = answer.simulations
    shared = _shared_notes(rows)
    footnotes = Footnotes(_own_note(row, shared) for row in rows)
    unsaid = any(not _said(quantile) for row in rows for quantile in (row.ttft_p50_us, row.ttft_p95_us) if row.rounds)
    regional = tuple(f"{region}: {note}" for region, note in shared.items() if note)
    return Page(
        schema=SCHEMA,
        title=f"ttft, what if: {', '.join(answer.members)}; rounds between {between(answer.window)}",
        facts={"window": to_json_value(answer.window), "members": list(answer.members)},
        fields=wire_fields(Simulation),
        columns=_columns(_references(rows), footnotes, shared),
        rows=rows,
        group=lambda row: f"from {row.region}, {row.rounds} rounds",
        notes=(*footnotes.notes, *((_CHANGE,) if rows else ()), *regional, *((_TOO_FEW,) if unsaid else ())),
    )


def require_rounds(answer: SimulationList) -> None:
    """Raises `InsufficientError` when there was nothing to play anywhere."""
    if not any(row.rounds for row in answer.simulations):
        why = next((row.note for row in answer.simulations if row.note), f"no samples between {between(answer.window)}")
        raise InsufficientError(
            why, hint="name members that are measured in the same rounds and regions, or take a longer --window"
        )


def _references(rows: tuple[Simulation, ...]) -> Mapping[str, Simulation]:
    """Per region the first static line, or the first line of all."""
    static_first = sorted(rows, key=lambda row: not row.policy.startswith(_STATIC))
    return {row.region: row for row in reversed(static_first)}


def _shared_notes(rows: tuple[Simulation, ...]) -> dict[str, str]:
    """Per region what every line of it has to note."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        of_row = row.note.split(_BETWEEN_NOTES)
        notes[row.region] = [note for note in notes.get(row.region, of_row) if note in of_row]
    return {region: _BETWEEN_NOTES.join(shared) for region, shared in notes.items()}


def _own_note(row: Simulation, shared: Mapping[str, str]) -> str:
    common = shared[row.region].split(_BETWEEN_NOTES)
    return _BETWEEN_NOTES.join(note for note in row.note.split(_BETWEEN_NOTES) if note not in common)


def _said(quantile: Quantile | None) -> bool:
    return quantile is not None and quantile.low is not None and quantile.high is not None


def _value(quantile: Quantile | None) -> float | None:
    return quantile.value if quantile is not None and _said(quantile) else None


def _columns(
    references: Mapping[str, Simulation], footnotes: Footnotes, shared: Mapping[str, str]
) -> tuple[Column[Simulation], ...]:
    def added(quantile: Callable[[Simulation], Quantile | None]) -> Callable[[Simulation], str]:
        """How much more than the reference, in milliseconds."""

        def text(row: Simulation) -> str:
            if row is references[row.region]:
                return ""
            own, reference = _value(quantile(row)), _value(quantile(references[row.region]))
            if own is None or reference is None:
                return UNKNOWN
            return number(milliseconds(own - reference), signed=True)

        return text

    def p50(row: Simulation) -> Quantile | None:
        return row.ttft_p50_us

    def p95(row: Simulation) -> Quantile | None:
        return row.ttft_p95_us

    return (
        Column(heading="policy", text=lambda row: footnotes.marked(row.policy, _own_note(row, shared)), wide=True),
        Column(heading="p50", unit="ms", text=lambda row: number(milliseconds(_value(p50(row))))),
        Column(heading="change", unit="ms", text=added(p50)),
        Column(heading="p95", unit="ms", text=lambda row: number(milliseconds(_value(p95(row))))),
        Column(heading="interval", unit="95 %, ms", text=lambda row: _interval_ms(p95(row))),
        Column(heading="change", unit="ms", text=added(p95)),
        Column(heading="requests", text=lambda row: str(row.requests)),
        Column(heading="cost", unit="$", text=lambda row: dollars(row.usd)),
        Column(heading="switches", text=lambda row: str(row.switches)),
        Column(heading="failed", text=lambda row: str(row.failed), style=lambda row: "red" if row.failed else ""),
    )


def _interval_ms(quantile: Quantile | None) -> str:
    return interval(milliseconds(quantile.low), milliseconds(quantile.high)) if quantile else UNKNOWN
