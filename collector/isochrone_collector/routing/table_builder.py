"""Builder of the published table from a decision, and replay of a stored one."""

from dataclasses import replace

from isochrone_collector.routing import canonical_form
from isochrone_collector.routing.decision import Decision, decide
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.race import race_set
from isochrone_collector.routing.switch import State
from isochrone_collector.routing.weights import UNASSIGNED
from isochrone_wire.routes import ChangeKind, Provenance, RouteState, RouteTable

_MOVES_PER_EPOCH = 10


def build_table(
    inputs: Inputs, decision: Decision, *, generation: int, code_version: str, inputs_text: str | None = None
) -> RouteTable:
    """Build the table of a decision; its freshness counts from the newest sample the decision is based on.
    `inputs_text` is the canonical form of the inputs, if it is known.
    """
    rules = inputs.rules
    since_at = decision.newest_at or inputs.at
    provenance = Provenance(
        plan_version=inputs.plan_version,
        code_version=code_version,
        inputs_sha256=canonical_form.digest(inputs_text or canonical_form.dump(inputs)),
    )
    ready = decision.route_state in (RouteState.OK, RouteState.DEGRADED)
    bare = RouteTable(
        generation=generation,
        etag="",
        client_region=inputs.client_region,
        route=inputs.route.name,
        built_at=inputs.at,
        fresh_until_at=since_at + rules.fresh_us,
        stale_until_at=since_at + rules.stale_us,
        state=decision.route_state,
        slo=inputs.route.slo,
        window=inputs.window,
        provenance=provenance,
        change=decision.change,
        sentence=decision.sentence,
        entries=decision.entries,
        excluded=decision.excluded,
        static_order=inputs.route.static_order or inputs.route.members,
        unassigned=decision.state.weights.get(UNASSIGNED, 0.0),
        move_within_us=rules.epoch_us // _MOVES_PER_EPOCH,
        race=race_set(inputs, [entry.target for entry in decision.entries]) if ready else None,
    )
    return replace(bare, etag=canonical_form.etag(generation, canonical_form.dump(bare)))


def needs_publishing(published: RouteTable | None, decision: Decision, inputs: Inputs) -> bool:
    """Return whether a decision deserves a new generation: something changed, or the published table is a fifth of an
    epoch old and there is newer evidence, or the published table is from the future.
    """
    if published is None or decision.change is not ChangeKind.EVIDENCE or published.state is not decision.route_state:
        return True
    if published.fresh_until_at > inputs.at + inputs.rules.fresh_us:
        return True
    if decision.newest_at + inputs.rules.fresh_us <= published.fresh_until_at:
        return False
    return inputs.at - published.built_at >= inputs.rules.epoch_us // 5


def replay(document: str, inputs_text: str, before_text: str) -> tuple[str, Decision]:
    """Return the document that this program makes of stored inputs, and its decision. Raises `ValueError`."""
    published = canonical_form.load(RouteTable, document)
    inputs = canonical_form.load(Inputs, inputs_text)
    decision = decide(inputs, canonical_form.load(State, before_text))
    again = build_table(
        inputs, decision, generation=published.generation, code_version=published.provenance.code_version
    )
    return canonical_form.dump(again), decision
