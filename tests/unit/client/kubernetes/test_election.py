"""One replica holds the lease at a time, whatever the clocks of the machines show."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from isochrone_client.kubernetes.reconciler import DEADLINE_SECONDS, DURATION_SECONDS, Election

TIME = "2026-11-23T12:00:00.000000Z"


def take(one: Election, spec: dict[str, Any] | None, now: float) -> dict[str, Any] | None:
    """Let a candidate write the lease if it wants to; return the lease afterwards."""
    wanted = one.wanted(spec, now=now, renew_time=TIME.replace("12:00", f"12:{int(now) % 60:02}"))
    if wanted is None:
        return spec
    one.written(wanted, at=now)
    return wanted


def test_the_first_candidate_leads() -> None:
    """Without a lease a candidate creates it, and leads until it would have to be renewed."""
    one = Election("a")
    spec = take(one, None, 100.0)
    assert spec is not None
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("a", 0)
    assert one.leads(100.0 + DEADLINE_SECONDS - 0.1)
    assert not one.leads(100.0 + DEADLINE_SECONDS)


def test_a_lease_that_is_renewed_is_not_taken() -> None:
    """A candidate waits while it sees renewals."""
    holder, other = Election("a"), Election("b")
    spec = take(holder, None, 0.0)
    for now in range(1, 100, 5):
        spec = take(holder, spec, float(now))
        assert other.wanted(spec, now=now + 1000.0, renew_time=TIME) is None


def test_a_lease_that_is_not_renewed_is_taken_after_its_duration() -> None:
    """The duration counts from when the candidate first saw the lease, by its own clock."""
    holder, other = Election("a"), Election("b")
    spec = take(holder, None, 0.0)
    assert other.wanted(spec, now=5000.0, renew_time=TIME) is None
    assert other.wanted(spec, now=5000.0 + DURATION_SECONDS - 0.1, renew_time=TIME) is None
    taken = other.wanted(spec, now=5000.0 + DURATION_SECONDS, renew_time=TIME)
    assert taken is not None
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("b", 1)


def test_a_lease_that_is_given_up_is_taken_at_once() -> None:
    """Without a holder nobody has to be waited for."""
    spec = dict(take(Election("a"), None, 0.0) or {}) | {"holderIdentity": ""}
    assert Election("b").wanted(spec, now=0.0, renew_time=TIME) is not None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 6.0), st.booleans()), min_size=1, max_size=80))
def test_two_never_lead(steps: list[tuple[str, float, bool]]) -> None:
    """Whoever acts when, at most one candidate leads at any instant; a write from an old version fails."""
    candidates = {name: Election(name) for name in "abc"}
    # Each has its own clock.
    offset = {"a": 0.0, "b": 5000.0, "c": 90.0}
    spec, now = None, 0.0
    for name, pause, is_slow in steps:
        now += pause
        one = candidates[name]
        before = spec
        wanted = one.wanted(before, now=now + offset[name], renew_time=f"{now}")
        if wanted is None:
            one.lost()
        elif is_slow:
            one.lost()  # another write came first, as far as it knows
        else:
            spec = wanted
            one.written(wanted, at=now + offset[name])
        leading = [name for name, one in candidates.items() if one.leads(now + offset[name])]
        assert len(leading) <= 1
