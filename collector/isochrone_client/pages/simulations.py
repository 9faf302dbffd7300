from collections.abc import Callable, Mapping

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, Amount, amount_dollars, between, milliseconds
from isochrone_client.pages import cells
from isochrone_client.render.page import Column, Page, answer_page
from isochrone_wire.insights import Simulation, SimulationList
from isochrone_wire.text import ESTIMAND

_BETWEEN_NOTES = "; "
_CHANGE = "change: relative to the first static line, or to the first line if there is none"
_QUANTILES: tuple[cells.QuantileOf[Simulation], ...] = (lambda row: row.ttft_p50_us, lambda row: row.ttft_p95_us)


def page(answer: SimulationList) -> Page[Simulation]:
    """The page of a simulation, one table per region; changes are relative to the region's first static line."""
    rows = answer.simulations
    shared = _shared_notes(rows)

    def own_note(row: Simulation) -> str:
        common = shared[row.region].split(_BETWEEN_NOTES)
        return _BETWEEN_NOTES.join(note for note in row.note.split(_BETWEEN_NOTES) if note not in common)

    footnotes = cells.Footnotes(map(own_note, rows))
    # A policy that was not replayed has no rounds.
    rounds = {row.region: row.rounds for row in sorted(rows, key=lambda row: row.rounds)}
    static_first = sorted(rows, key=lambda row: not row.policy.startswith("static:"))
    references = {row.region: row for row in reversed(static_first)}
    return answer_page(
        answer,
        f"ttft, what if: {', '.join(answer.members)}; rounds between {between(answer.window)}",
        _columns(references, lambda row, name: footnotes.marked(name, own_note(row))),
        group=lambda row: f"from {row.region}, {rounds[row.region]} rounds",
        notes=(
            *footnotes.notes,
            *((_CHANGE, ESTIMAND) if rows else ()),
            *(f"{region}: {note}" for region, note in shared.items() if note),
            *cells.notes_that_hold((cells.are_early(of(row) for row in rows for of in _QUANTILES), cells.EARLY)),
        ),
    )


def require_replay(answer: SimulationList) -> None:
    """Raises `InsufficientError` if no region has rounds to replay."""
    if not answer.members and not answer.simulations:
        raise cells.no_samples(answer.window)
    if len(answer.members) == 1:
        raise InsufficientError(
            f"a simulation needs two targets; only {answer.members[0]} has samples between {between(answer.window)}",
            hint="add an interchangeable target to the plan, select more with --target, or use a longer --window",
        )
    if not any(row.rounds for row in answer.simulations):
        why = next((row.note for row in answer.simulations if row.note), f"no samples between {between(answer.window)}")
        raise InsufficientError(
            why, hint="use members that are measured in the same rounds and regions, or a longer --window"
        )


def _shared_notes(rows: tuple[Simulation, ...]) -> dict[str, str]:
    notes: dict[str, list[str]] = {}
    for row in rows:
        of_row = row.note.split(_BETWEEN_NOTES)
        notes[row.region] = [note for note in notes.get(row.region, of_row) if note in of_row]
    return {region: _BETWEEN_NOTES.join(shared) for region, shared in notes.items()}


def _columns(
    references: Mapping[str, Simulation], marked: Callable[[Simulation, str], str]
) -> tuple[Column[Simulation], ...]:
    """The columns, with differences to the reference of the region; a static policy is short without its provider."""
    p50, p95 = _QUANTILES

    def change(of: cells.QuantileOf[Simulation]) -> Callable[[Simulation], str | Amount]:
        def text(row: Simulation) -> str | Amount:
            if row is references[row.region]:
                return ""
            own, reference = of(row), of(references[row.region])
            if own is None or reference is None:
                return UNKNOWN
            # A change is one in these rounds, so that it needs no upper bound.
            pattern = "{}?" if own.low is None or reference.low is None else "{}"
            return Amount((milliseconds(own.value - reference.value),), pattern, signed=1)

        return text

    def short(row: Simulation) -> str:
        name, _, target = row.policy.rpartition(":")
        return marked(row, f"{name}:{cells.model_part(target)}" if name else row.policy)

    return (
        Column("policy", lambda row: marked(row, row.policy), wide=True, short=short, short_of=cells.PROVIDERS),
        cells.quantile_column("p50", p50),
        Column("change of\np50", change(p50), unit="ms", scale="ms", priority=2),
        cells.quantile_column("p95", p95, share=0.95, n=lambda row: row.rounds),
        cells.interval_column(p95, share=0.95, priority=4),
        Column("change of\np95", change(p95), unit="ms", scale="ms", priority=3),
        cells.worth_column("rounds", lambda row: row.rounds, p95, priority=8),
        Column("requests", lambda row: str(row.requests), priority=6),
        Column("cost", lambda row: amount_dollars(row.usd), unit="$", priority=1),
        Column("switches", lambda row: str(row.switches), priority=7),
        Column("failed", lambda row: str(row.failed), style=lambda row: "red" if row.failed else "", priority=5),
    )
