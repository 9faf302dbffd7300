"""Simulations: policies replayed on the recorded rounds, compared with a static choice."""

from collections.abc import Callable, Mapping

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, Amount, amount, amount_dollars, between, milliseconds
from isochrone_client.pages.cells import TOO_FEW, Footnotes, interval_of, is_shown, no_samples, value_of, worth
from isochrone_client.pages.targets import PROVIDERS
from isochrone_client.render.page import Column, Page, wire_fields
from isochrone_wire.answers import Quantile
from isochrone_wire.insights import Simulation, SimulationList
from isochrone_wire.json_format import to_json_value
from isochrone_wire.text import ESTIMAND

SCHEMA = "isochrone.simulate/1"
_STATIC = "static:"
_SCALE = "latency"
_BETWEEN_NOTES = "; "
_CHANGE = "change: relative to the first static line, or to the first line if there is none"


def page(answer: SimulationList) -> Page[Simulation]:
    """The page of a simulation, one table per region; changes are relative to the region's first static line."""
    rows = answer.simulations
    shared = _shared_notes(rows)
    footnotes = Footnotes(_own_note(row, shared) for row in rows)
    has_hidden = any(
        not is_shown(quantile) for row in rows for quantile in (row.ttft_p50_us, row.ttft_p95_us) if row.rounds
    )
    # A policy that was not replayed has no rounds.
    rounds = {row.region: row.rounds for row in sorted(rows, key=lambda row: row.rounds)}
    regional = tuple(f"{region}: {note}" for region, note in shared.items() if note)
    return Page(
        schema=SCHEMA,
        title=f"ttft, what if: {', '.join(answer.members)}; rounds between {between(answer.window)}",
        facts={"window": to_json_value(answer.window), "members": list(answer.members)},
        fields=wire_fields(Simulation),
        columns=_columns(_references(rows), footnotes, shared),
        rows=rows,
        group=lambda row: f"from {row.region}, {rounds[row.region]} rounds",
        notes=(
            *footnotes.notes,
            *((_CHANGE, ESTIMAND) if rows else ()),
            *regional,
            *((TOO_FEW,) if has_hidden else ()),
        ),
    )


def require_rounds(answer: SimulationList) -> None:
    """Raises `InsufficientError` if no region has rounds to replay."""
    if not answer.members and not answer.simulations:
        raise no_samples(answer.window)
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


def _references(rows: tuple[Simulation, ...]) -> Mapping[str, Simulation]:
    """The first static line of each region, or its first line if there is none."""
    static_first = sorted(rows, key=lambda row: not row.policy.startswith(_STATIC))
    return {row.region: row for row in reversed(static_first)}


def _shared_notes(rows: tuple[Simulation, ...]) -> dict[str, str]:
    """The notes that all lines of a region share."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        of_row = row.note.split(_BETWEEN_NOTES)
        notes[row.region] = [note for note in notes.get(row.region, of_row) if note in of_row]
    return {region: _BETWEEN_NOTES.join(shared) for region, shared in notes.items()}


def _own_note(row: Simulation, shared: Mapping[str, str]) -> str:
    common = shared[row.region].split(_BETWEEN_NOTES)
    return _BETWEEN_NOTES.join(note for note in row.note.split(_BETWEEN_NOTES) if note not in common)


def _columns(
    references: Mapping[str, Simulation], footnotes: Footnotes, shared: Mapping[str, str]
) -> tuple[Column[Simulation], ...]:
    def added(quantile: Callable[[Simulation], Quantile | None]) -> Callable[[Simulation], str | Amount]:
        """The difference to the reference, in milliseconds."""

        def text(row: Simulation) -> str | Amount:
            if row is references[row.region]:
                return ""
            own, reference = value_of(quantile(row)), value_of(quantile(references[row.region]))
            if own is None or reference is None:
                return UNKNOWN
            return amount(milliseconds(own - reference), signed=True)

        return text

    def p50(row: Simulation) -> Quantile | None:
        return row.ttft_p50_us

    def p95(row: Simulation) -> Quantile | None:
        return row.ttft_p95_us

    return (
        _policy(footnotes, shared),
        Column(heading="p50", unit="ms", text=lambda row: amount(milliseconds(value_of(p50(row)))), scale=_SCALE),
        Column(heading="change of\np50", unit="ms", text=added(p50), scale=_SCALE, priority=2),
        Column(heading="p95", unit="ms", text=lambda row: amount(milliseconds(value_of(p95(row)))), scale=_SCALE),
        Column(
            heading="interval",
            unit="95 %, ms",
            text=lambda row: interval_of(p95(row), milliseconds),
            scale=_SCALE,
            priority=4,
        ),
        Column(heading="change of\np95", unit="ms", text=added(p95), scale=_SCALE, priority=3),
        Column(
            heading="rounds ≈\nindependent",
            text=lambda row: worth(row.rounds, quantile.n_eff if (quantile := p95(row)) else None),
            priority=8,
        ),
        Column(heading="requests", text=lambda row: str(row.requests), priority=6),
        Column(heading="cost", unit="$", text=lambda row: amount_dollars(row.usd), priority=1),
        Column(heading="switches", text=lambda row: str(row.switches), priority=7),
        Column(
            heading="failed",
            text=lambda row: str(row.failed),
            style=lambda row: "red" if row.failed else "",
            priority=5,
        ),
    )


def _policy(footnotes: Footnotes, shared: Mapping[str, str]) -> Column[Simulation]:
    """The column of the policies; a static one without the provider of its target on a narrow screen."""

    def short(row: Simulation) -> str:
        name, _, target = row.policy.rpartition(":")
        model = target.partition("/")[2] or target
        return footnotes.marked(f"{name}:{model}" if name else row.policy, _own_note(row, shared))

    return Column(
        heading="policy",
        text=lambda row: footnotes.marked(row.policy, _own_note(row, shared)),
        wide=True,
        short=short,
        short_of=PROVIDERS,
    )
