"""Conditions that raise alerts: absences, budgets, clocks and routes."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from isochrone_collector.alerts.conditions import (
    LastAlert,
    absence_alerts,
    budget_alerts,
    is_clock_wrong,
    objective_alerts,
    of_change,
    of_vantage_clock,
)
from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.fleet_state import Spender, VantageState
from isochrone_wire.answers import Proportion
from isochrone_wire.insights import AlertKind, Eligible
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Budget, Plan, Price, Spend, Target, day_of
from isochrone_wire.routes import ChangeKind, RouteState, RouteTable
from isochrone_wire.workloads import estimate_request
from testdata.insights import NOW_AT
from testdata.routes import CHAT

SEEN_AT = 1_795_000_000_000_000


def heard(promise_s: int | None = 15, *, seen_at: int = SEEN_AT) -> VantageState:
    promised = None if promise_s is None else seen_at + promise_s * SECOND_US
    return VantageState(
        name="ohio-1",
        region="us-east-2",
        first_seen_at=seen_at,
        last_seen_at=seen_at,
        next_heartbeat_at=promised,
    )


def kinds(
    vantage: VantageState, after_us: int, last_alerts: LastAlert | None = None, *, since_at: int = 0
) -> list[AlertKind]:
    known = {vantage.name: last_alerts} if last_alerts else {}
    notices = absence_alerts([vantage], known, now_at=vantage.last_seen_at + after_us, since_at=since_at)
    return [notice.kind for notice in notices]


@pytest.mark.parametrize(
    ("promise_s", "patience_s"), [(15, 15 + 120), (None, 60 + 180), (300, 300 + 900), (0, 60 + 180), (1, 1 + 120)]
)
def test_patience_is_three_promises_and_two_minutes_at_least(promise_s: int | None, patience_s: int) -> None:
    """A vantage is absent after three missed heartbeats and at least two minutes."""
    promise = promise_s or None
    assert kinds(heard(promise), patience_s * SECOND_US) == []
    assert kinds(heard(promise), patience_s * SECOND_US + 1) == [AlertKind.VANTAGE_ABSENT]


def test_a_stopped_vantage_is_absent_after_an_hour() -> None:
    """A stopped agent raises no alert until it is overdue for an hour: then one, with the reason."""
    stopped = replace(heard(), stopped=True)
    assert kinds(stopped, 60 * MINUTE_US + 15 * SECOND_US) == []
    [forgotten] = absence_alerts([stopped], {}, now_at=SEEN_AT + 61 * MINUTE_US, since_at=0)
    assert forgotten.kind is AlertKind.VANTAGE_ABSENT
    assert "was stopped 61 min ago, and was not started again" in forgotten.sentence
    raised = LastAlert(kind=forgotten.kind, alert_id=forgotten.id, raised_at=forgotten.raised_at)
    assert kinds(stopped, 90 * MINUTE_US, raised) == []
    again = heard(seen_at=SEEN_AT + 2 * 60 * MINUTE_US)
    assert kinds(again, SECOND_US, raised) == [AlertKind.VANTAGE_BACK]


def test_an_absence_is_told_once() -> None:
    """An absence is raised once; a new absence is raised with its own id."""
    first, *others = (
        next(absence_alerts([heard()], {}, now_at=SEEN_AT + minutes * MINUTE_US, since_at=0)) for minutes in (5, 4, 60)
    )
    assert {one.id for one in others} == {first.id}, "two collectors that detect it at different instants raise one"
    last_alerts = LastAlert(kind=AlertKind.VANTAGE_ABSENT, alert_id=first.id, raised_at=first.raised_at)
    assert kinds(heard(), 9 * MINUTE_US, last_alerts) == []
    later = heard(seen_at=SEEN_AT + 20 * MINUTE_US)
    [second] = absence_alerts([later], {"ohio-1": last_alerts}, now_at=later.last_seen_at + 5 * MINUTE_US, since_at=0)
    assert second.id != first.id


ABSENT = LastAlert(AlertKind.VANTAGE_ABSENT, 7, SEEN_AT - MINUTE_US)
BACK = LastAlert(AlertKind.VANTAGE_BACK, 8, SEEN_AT)
AWAY = 60 * MINUTE_US


@pytest.mark.parametrize(
    ("after_us", "last", "since_at", "raised"),
    [
        # A return is raised after a raised absence, and not after a return.
        (SECOND_US, ABSENT, 0, [AlertKind.VANTAGE_BACK]),
        (SECOND_US, BACK, 0, []),
        (SECOND_US, None, 0, []),
        # Between the due heartbeat and the end of the tolerance nothing is raised.
        (60 * SECOND_US, ABSENT, 0, []),
        # After a collector's downtime every vantage gets the full tolerance.
        (61 * MINUTE_US, None, SEEN_AT + AWAY, []),
        (63 * MINUTE_US, None, SEEN_AT + AWAY, [AlertKind.VANTAGE_ABSENT]),
        # A new collector raises nothing for vantages that were gone long before.
        (DAY_US + MINUTE_US, None, 0, []),
    ],
)
def test_returns_and_absences(after_us: int, last: LastAlert | None, since_at: int, raised: list[AlertKind]) -> None:
    """An absence and a return are raised once, and only if the collector could have seen the heartbeats."""
    assert kinds(heard(), after_us, last, since_at=since_at) == raised


TODAY_AT = 1_795_248_000_000_000
TODAY = day_of(TODAY_AT)
TARGET = Target(id=1, name="p/m", provider="p", model="m", base_url="http://h", price=Price(usd_per_m_output=100.0))
TOKENS = estimate_request(TARGET).tokens


def sentences(spend: Spend, *, targets: tuple[Target, ...] = (TARGET,), **limits: float) -> list[str]:
    plan = Plan(version=1, baseline="us", targets=targets, budgets=(Budget(provider="p", **limits),))  # type: ignore[arg-type]  # the cases choose the fields
    spender = Spender(vantage="us-1", region="us", reported=(spend,))
    return [message.sentence for message in budget_alerts([spender], plan, now_at=TODAY_AT)]


@pytest.mark.parametrize(
    ("spend", "limits", "reached"),
    [
        ({"requests": 9}, {"requests_per_day": 10}, ""),
        ({"requests": 10}, {"requests_per_day": 10}, "10 of 10 requests sent"),
        ({"tokens": 1000}, {"tokens_per_day": 1000 + TOKENS}, ""),
        ({"tokens": 1001}, {"tokens_per_day": 1000 + TOKENS}, f"1001 of {1000 + TOKENS} tokens used"),
        ({"usd": 0.99}, {"usd_per_day": 1.0}, "0.99 of 1.00 USD spent"),
        ({"usd": 0.97}, {"usd_per_day": 1.0}, ""),
        ({"usd": 5.0, "requests": 3}, {}, ""),
    ],
)
def test_a_budget_is_used_up_when_no_round_fits(
    spend: dict[str, float], limits: dict[str, float], reached: str
) -> None:
    """The alert comes when the cheapest round of the provider would exceed a limit, as the agent decides it."""
    found = sentences(Spend(provider="p", day_at=TODAY, **spend), **limits)  # type: ignore[arg-type]  # as above
    assert found == ([f"the budget of today has no room for another round: {reached}"] if reached else [])


def test_the_budget_of_another_day_does_not_count() -> None:
    """The spend that an agent reported yesterday says nothing about today, and nothing is exhausted without targets."""
    assert sentences(Spend(provider="p", day_at=TODAY - DAY_US, requests=10), requests_per_day=10) == []
    assert sentences(Spend(provider="p", day_at=TODAY, requests=10), targets=(), requests_per_day=10) == []


@pytest.mark.parametrize(
    ("offset_s", "uncertainty_s", "wrong"),
    [(None, None, False), (9, None, False), (11, None, True), (-11, 0, True), (60, 55, False), (60, 45, True)],
)
def test_a_clock_is_wrong_only_certainly(offset_s: int | None, uncertainty_s: int | None, wrong: bool) -> None:  # noqa: FBT001  # a case
    """A clock is wrong if it is more than ten seconds off beyond its uncertainty."""
    offset, uncertainty = (None if one is None else one * SECOND_US for one in (offset_s, uncertainty_s))
    assert is_clock_wrong(offset, uncertainty) is wrong


def test_a_wrong_clock_is_raised_once_a_day() -> None:
    """The alert states the offset and its direction, and has the same id all day."""
    message = of_vantage_clock("us-1", "us", -61 * SECOND_US, raised_at=TODAY_AT)
    assert message.kind is AlertKind.CLOCK_WRONG
    assert message.sentence.startswith("the clock of us-1 in us is 61 s behind the collector's")
    later = of_vantage_clock("us-1", "us", -65 * SECOND_US, raised_at=TODAY_AT + 3600 * SECOND_US)
    tomorrow = of_vantage_clock("us-1", "us", -65 * SECOND_US, raised_at=TODAY_AT + DAY_US)
    assert message.id == later.id != tomorrow.id


MEMBER = CHAT.entries[0].target
SUBJECT = f"{MEMBER} in {CHAT.route} from {CHAT.client_region}"


def judged(eligible: Eligible, **more: object) -> RouteTable:
    goodput = Proportion(value=0.912, low=0.88, high=0.931, n=360)
    entry = replace(CHAT.entries[0], slo_in_window=eligible, goodput=goodput)
    return replace(CHAT, entries=(entry,), **more)  # type: ignore[arg-type]  # the cases choose the fields


def raised(table: RouteTable, last: AlertMessage | None = None, explained: Collection[str] = ()) -> list[AlertMessage]:
    known = {SUBJECT: LastAlert(kind=last.kind, alert_id=last.id, raised_at=last.raised_at)} if last else {}
    return list(objective_alerts(table, known, explained, raised_at=NOW_AT))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        *((change, AlertKind.ROUTE_SWITCHED) for change in (ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD)),
        (ChangeKind.FREEZE, AlertKind.ROUTE_FROZEN),
        *((change, None) for change in (ChangeKind.FIRST, ChangeKind.EVIDENCE, ChangeKind.RAMP, ChangeKind.PLAN)),
        (ChangeKind.THAW, None),
    ],
)
def test_switches_and_freezes_are_raised(change: ChangeKind, kind: AlertKind | None) -> None:
    """A switch by one of the rules and a freeze have an alert with the sentence of the table; other changes none."""
    message = of_change(replace(CHAT, change=change, sentence="why"), raised_at=NOW_AT)
    assert (message and message.kind) == kind
    if message:
        assert (message.sentence, message.details["rule"]) == ("why", change.value)
        assert message.details["first"] == MEMBER


def test_a_breach_and_its_end_are_raised_once() -> None:
    """A breach is raised when the verdict is no, its end when it is yes, and nothing in between or again."""
    [breach] = raised(judged(Eligible.NO))
    assert (breach.kind, breach.subject) == (AlertKind.SLO_BREACHED, SUBJECT)
    assert breach.sentence.startswith("misses its objective: 91.2% of 360 requests kept its limits, 95.0% needed")
    assert raised(judged(Eligible.NO), breach) == []
    for between in (Eligible.MAYBE, Eligible.UNKNOWN):
        assert raised(judged(between)) == raised(judged(between), breach) == []
    [end] = raised(judged(Eligible.YES), replace(breach, raised_at=NOW_AT - 9 * MINUTE_US))
    assert (end.kind, end.sentence) == (
        AlertKind.SLO_RESTORED,
        "meets its objective again, 9 min after the breach was reported",
    )
    assert raised(judged(Eligible.YES)) == raised(judged(Eligible.YES), end) == []


def test_what_an_incident_explains_is_no_breach() -> None:
    """A target that failed has an incident already; a frozen table shows nothing."""
    assert raised(judged(Eligible.NO), explained={MEMBER}) == []
    assert raised(judged(Eligible.NO, state=RouteState.FROZEN)) == []
