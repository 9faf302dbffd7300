"""The published table of a decision, its replay, and its explanation, computed again from the table's inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from isochrone_collector.routing import serialization
from isochrone_collector.routing.decision import Decision, decide, is_aging
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.objective import (
    US_PER_MS,
    cost_of,
    eligible,
    is_failing,
    lead,
    margin_us,
    no_worse_group,
)
from isochrone_collector.routing.parallel_requests import race_set
from isochrone_collector.routing.present_levels import Present, followed
from isochrone_collector.routing.switch import State, breaks_alone, fast_limit_us, waits_us, written
from isochrone_collector.routing.weights import UNASSIGNED, caps
from isochrone_wire import durations
from isochrone_wire.answers import Proportion, Quantile
from isochrone_wire.routes import ChangeKind, Hedge, Provenance, RaceSet, RouteState, RouteTable

_MOVES_PER_EPOCH = 10
_READY = (RouteState.OK, RouteState.DEGRADED)


def build_table(
    inputs: Inputs, decision: Decision, *, generation: int, code_version: str, inputs_text: str | None = None
) -> RouteTable:
    """Build the table of a decision. `inputs_text` is the serialization of the inputs, if the caller has it."""
    rules = inputs.rules
    since_at = decision.newest_at or inputs.at
    provenance = Provenance(
        plan_version=inputs.plan_version,
        code_version=code_version,
        inputs_sha256=serialization.digest(inputs_text or serialization.dump(inputs)),
    )
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
        race=_race_of(inputs, decision),
    )
    return replace(bare, etag=serialization.etag(generation, serialization.dump(bare)))


def needs_publishing(published: RouteTable | None, decision: Decision, inputs: Inputs) -> bool:
    """Return whether something changed, newer evidence is due after a fifth of an epoch, or the table is ahead."""
    if published is None or decision.change is not ChangeKind.EVIDENCE or published.state is not decision.route_state:
        return True
    if published.fresh_until_at > inputs.at + inputs.rules.fresh_us:
        return True
    if decision.newest_at + inputs.rules.fresh_us <= published.fresh_until_at:
        return False
    return inputs.at - published.built_at >= inputs.rules.epoch_us // 5


def replay(document: str, inputs_text: str, before_text: str) -> tuple[str, Decision]:
    """Return the document that this program makes of stored inputs, and its decision. Raises `ValueError`."""
    published = serialization.load(RouteTable, document)
    inputs = serialization.load(Inputs, inputs_text)
    decision = decide(inputs, serialization.load(State, before_text))
    again = build_table(
        inputs, decision, generation=published.generation, code_version=published.provenance.code_version
    )
    return serialization.dump(again), decision


def _race_of(inputs: Inputs, decision: Decision) -> RaceSet | None:
    return race_set(inputs, [entry.target for entry in decision.entries]) if decision.route_state in _READY else None


def explain_steps(inputs: Inputs, before: State, decision: Decision) -> tuple[str, ...]:
    """Return the steps of a decision as sentences, in the order of the rules."""
    ranked = [entry.target for entry in decision.entries]
    window, epoch = durations.write(inputs.rules.window_us), durations.write(inputs.rules.epoch_us)
    suspects = f"{inputs.suspects} of {inputs.vantages} vantages are suspect, {inputs.suspects_here}"
    where = f"of {inputs.vantages_here} in {inputs.client_region}"
    steps = [f"plan {inputs.plan_version}; window {window}, epoch {epoch}; {suspects} {where}"]
    steps += [f"{one.target} is left out: {one.reason}" for one in decision.excluded]
    if decision.route_state in _READY:
        steps += [_eligibility(inputs, target) for target in ranked]
        steps += [_cost(inputs, target) for target in ranked]
        _, present = followed(before.levels, inputs)
        steps += _rules(inputs, present, replace(before, newest_at=decision.newest_at), ranked)
    steps.append(f"decided ({decision.change}): {decision.sentence}")
    steps += _outcome(inputs, decision, ranked)
    return tuple(steps)


def _eligibility(inputs: Inputs, target: str) -> str:
    evidence, slo = inputs.of(target), inputs.route.slo
    claimed, parts = evidence.claimed, []
    if slo.ttft_p95_us is not None:
        parts.append(f"p95 {_quantile(evidence.ttft_p95_us)}, limit {_ms(slo.ttft_p95_us)}")
    if slo.answer_p95_us is not None:
        answer = f"p95 of an answer of {slo.answer_tokens} tokens {_quantile(evidence.answer_p95_us)}"
        parts.append(f"{answer}, limit {_ms(slo.answer_p95_us)}")
    if claimed.goodput:
        floor = f" at {slo.min_tokens_per_second:g} tokens/s or more" if slo.min_tokens_per_second else ""
        parts.append(f"in time{floor} {_share(claimed.goodput)} of {claimed.goodput.n}, at least {slo.min_goodput:.4g}")
    if slo.min_success and claimed.success:
        parts.append(f"success {_share(claimed.success)}, at least {slo.min_success:.4g}")
    why = f": {'; '.join(parts)}" if parts else ", which promises nothing"
    failing = "; it fails, and goes behind all who do not" if is_failing(inputs, target) else ""
    now = f", in this window {recent}" if (recent := eligible(evidence, slo)) is not eligible(claimed, slo) else ""
    return f"{target} keeps the objective: {eligible(claimed, slo)}{now}{why}{failing}"


def _cost(inputs: Inputs, target: str) -> str:
    cost = cost_of(inputs, target)
    if cost is None:
        return f"{target} has no median yet, and goes behind who has"
    success = inputs.of(target).success
    at_least = f"failures: its success may be as low as {success.low:.1%}" if success else "failures"
    amounts = (
        (cost.ttft, "its median"),
        (cost.answer, "its whole answer"),
        (cost.tail, "its p95 beyond the limit"),
        (cost.usd, "its price"),
    )
    terms = [f"{ms:.0f} ms for {what}" for ms, what in (*amounts, (cost.failure, at_least)) if round(ms)]
    return f"{target} counts as {cost.total:.0f} ms: {', '.join(terms)}"


def _rules(inputs: Inputs, present: Present, before: State, ranked: Sequence[str]) -> Iterator[str]:
    incumbent = before.incumbent
    if incumbent is None:
        yield "there was no first choice before: the best one is taken"
        return
    if incumbent not in ranked:
        yield f"hard: the first choice, {incumbent}, is not in the ranking any more"
        return
    if is_aging(inputs, before):
        yield "the newest sample is too old: no rule may switch"
        return
    yield f"hard: {incumbent} {'fails' if is_failing(inputs, incumbent) else 'does not fail'}"
    for target in ranked:
        if target != incumbent:
            yield _comparison(inputs, incumbent, target)
            yield _challenge(inputs, present, incumbent, target)
            if left_us := waits_us(before, inputs, target):
                yield f"{target} failed as the first choice, and waits another {durations.write(left_us)}"


def _comparison(inputs: Inputs, incumbent: str, target: str) -> str:
    shift = inputs.against(incumbent, target).window
    by = _by("slower by", "faster by", shift.estimate, shift.low, shift.high) if shift else "no rounds to compare"
    return f"{incumbent} against {target}: {by} over {durations.write(inputs.rules.window_us)}"


def _challenge(inputs: Inputs, present: Present, incumbent: str, target: str) -> str:
    """Write what the fast and the soft rule say of a challenger."""
    if breaks_alone(inputs, incumbent, target):
        return f"fast: yes, {incumbent} breaks the objective in this window, and {target} keeps it"
    if not no_worse_group(inputs, incumbent, target):
        return f"no challenge: {target} keeps the objective less surely than {incumbent} in this window"
    found = lead(inputs, present, target, incumbent)
    if found is None:
        return f"no challenge: {incumbent} or {target} has no median yet, or they have no round in common"
    verdict = f"needed {_ms(found.needed_us)} and {found.likely:.0%}"
    if found.needed_us > margin_us(inputs, target):
        verdict += f", more than the usual {_ms(margin_us(inputs, target))} as the levels may drift"
    if not found.is_enough:
        return f"soft: no, {target} is now {written(found)} {incumbent}; {verdict}; level {found.level:.0%} sure"
    rule = "fast" if found.expected_us >= fast_limit_us(inputs, target) else "soft"
    return f"{rule}: yes, {target} is now {written(found)} {incumbent}; {verdict}"


def _outcome(inputs: Inputs, decision: Decision, ranked: Sequence[str]) -> Iterator[str]:
    shares = ", ".join(f"{entry.target} {entry.weight:.1%} (rank {entry.rank})" for entry in decision.entries)
    yield f"weights: {shares}" if shares else "weights: none; the static order holds"
    for target in ranked:
        throttled, cap = inputs.of(target).throttled, inputs.route.max_share.get(target, 1.0)
        reasons = [f"the plan allows {cap:.0%}"] if cap < 1 else []
        reasons += [f"{throttled:.0%} of its recent requests were throttled"] if throttled else []
        if reasons:
            yield f"share of {target}: at most {caps(inputs)[target]:.0%}, {' and '.join(reasons)}"
    if hedge := next((entry.hedge for entry in decision.entries if entry.hedge), None):
        yield _hedge(hedge)
    if race := _race_of(inputs, decision):
        expected = "" if race.expected_p95_us is None else f"; p95 {_ms(race.expected_p95_us)} expected"
        factor = "" if race.usd_factor is None else f"for {race.usd_factor:g} times the price of the first"
        yield f"race: {', '.join(race.targets)}{expected} ({race.reason or factor})"


def _hedge(hedge: Hedge) -> str:
    if hedge.delay_us is None:
        return f"hedge with {hedge.target}: no, {hedge.reason}"
    without, with_hedge = hedge.expected_p99_without_us or 0.0, hedge.expected_p99_with_us or 0.0
    return f"hedge: start {hedge.target} after {_ms(hedge.delay_us)}; p99 {_ms(without)} → {_ms(with_hedge)} expected"


def _by(positive: str, negative: str, value_us: float, low_us: float | None, high_us: float | None) -> str:
    """The amount with the words for its sign; the interval has the direction of these words."""
    if value_us >= 0:
        return f"{positive} {_interval(value_us, low_us, high_us)}"
    low, high = (None if bound is None else -bound for bound in (high_us, low_us))
    return f"{negative} {_interval(-value_us, low, high)}"


def _interval(value_us: float, low_us: float | None, high_us: float | None) -> str:
    if low_us is None:
        return f"{_ms(value_us)} [no interval yet]"
    if high_us is None:
        return f"{_ms(value_us)} [at least {low_us / US_PER_MS:.0f}]"
    return f"{_ms(value_us)} [{low_us / US_PER_MS:.0f}, {high_us / US_PER_MS:.0f}]"


def _ms(duration_us: float) -> str:
    return f"{duration_us / US_PER_MS:.0f} ms"


def _quantile(found: Quantile | None) -> str:
    return _interval(found.value, found.low, found.high) if found else "not known"


def _share(found: Proportion) -> str:
    return f"{found.value:.1%} [{found.low:.1%}, {found.high:.1%}]"
