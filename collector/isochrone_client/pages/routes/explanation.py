"""The decision behind a route table: its steps in order, and whether repeating it gives the same table."""

import json
from dataclasses import dataclass
from typing import Any

from isochrone_client.errors import ClientError
from isochrone_client.pages.freshness import freshness_text
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.json_format import minute, to_json_value
from isochrone_wire.routes import Explanation, RouteTable

SCHEMA = "isochrone.route-explanation/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStep:
    """One step of a decision; numbers start at 1."""

    number: int
    sentence: str


def page(answer: Explanation, *, now_at: int) -> Page[DecisionStep]:
    """The explanation for people, one sentence per row."""
    table = answer.table
    return Page(
        schema=SCHEMA,
        title=f"{table.route} from {table.client_region}, generation {table.generation}: "
        f"built {minute(table.built_at)} UTC, {freshness_text(table, now_at=now_at)}",
        fields=wire_fields(DecisionStep),
        columns=(
            Column(heading="step", text=lambda step: str(step.number)),
            Column(heading="why", text=lambda step: step.sentence, wide=True, prose=True),
        ),
        rows=tuple(
            DecisionStep(number=number, sentence=sentence) for number, sentence in enumerate(answer.steps, start=1)
        ),
        notes=(_replay(answer), f"inputs sha256:{table.provenance.inputs_sha256}"),
    )


def document(answer: Explanation, *, with_inputs: bool = True) -> Page[RouteTable]:
    """The explanation for programs: the table, its steps, and the inputs and previous state as stored, which may be
    long.
    """
    stored = {"inputs": _stored(answer.inputs), "before": _stored(answer.before)} if with_inputs else {}
    return Page(
        schema=SCHEMA,
        title="",
        facts={
            "steps": list(answer.steps),
            "replays": answer.replays,
            "table": to_json_value(answer.table),
            **stored,
        },
        fields=(),
        columns=(),
        rows=(),
    )


def require_replay(answer: Explanation) -> None:
    """Raises `ClientError` if repeating the decision did not give the same table."""
    if not answer.replays:
        raise ClientError(
            f"repeating the decision from the stored inputs does not give generation {answer.table.generation}",
            hint=f"version {answer.table.provenance.code_version} built it; does the collector run another version?",
        )


def _replay(answer: Explanation) -> str:
    result = "gives the same table, byte for byte" if answer.replays else "does NOT give this table"
    return f"repeating the decision from the stored inputs {result}"


def _stored(text: str) -> Any:  # noqa: ANN401  # any stored JSON
    return json.loads(text) if text else None
