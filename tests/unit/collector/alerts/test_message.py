"""Alert messages and their topics."""

from dataclasses import replace

import pytest

from isochrone_collector.alerts.message import (
    Action,
    ChangedSeries,
    Severity,
    of_absence,
    of_certificate,
    of_change,
    of_collector_clock,
    of_return,
    of_test,
    topic_of,
)
from isochrone_collector.analysis.drift import Change
from isochrone_wire.answers import Metric
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US
from isochrone_wire.operations import alert_name
from testdata.alert_messages import acknowledged, fails, recovers, switches

AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z
WHOSE = ChangedSeries(target="openai/gpt-5", provider="openai", model="gpt-5", region="us-east-2", metric=Metric.TTFT)


def change(before: float, after: float, *, changed_at: int = AT) -> Change:
    return Change(
        changed_at=changed_at, seen_at=AT + 6, before=before, after=after, p_value=0.002, n_before=288, n_after=6
    )


@pytest.mark.parametrize(
    ("metric", "values", "sentence"),
    [
        (Metric.TTFT, (240_000, 320_400), "ttft rose by 34 %, from 240 to 320 ms, at 2026-11-21 08:00 UTC"),
        (Metric.TTFT, (1_234_000, 24_680), "ttft fell by 98 %, from 1234 to 24.7 ms, at 2026-11-21 08:00 UTC"),
        (Metric.TOKENS_PER_SECOND, (60.0, 42.0), "speed fell by 30 %, from 60 to 42 tokens/s, at 2026-11-21 08:00 UTC"),
    ],
)
def test_a_change_in_words(metric: Metric, values: tuple[float, float], sentence: str) -> None:
    """The sentence of a change has direction, size, both levels in a common unit, and the instant."""
    series = ChangedSeries(target="a", provider="b", model="c", region="d", metric=metric)
    assert of_change(series, change(*values), raised_at=AT).sentence == sentence


def test_a_change_before_the_weekly_cycle_is_known_may_be_weekly() -> None:
    """The sentence and the details of an alert state that the change may be weekly."""
    early = of_change(WHOSE, replace(change(1, 2), may_be_weekly=True), raised_at=AT)
    assert early.sentence.endswith("UTC; may be weekly")
    assert early.details["may_be_weekly"]


def test_ids_are_of_what_is_said() -> None:
    """The id depends on the subject, not on the instant of raising. Ids are positive 64-bit numbers."""
    same = {of_change(WHOSE, change(1, 2), raised_at=AT + late).id for late in (0, 99)}
    assert len(same) == 1
    others = {
        of_change(WHOSE, change(1, 2, changed_at=AT + 1), raised_at=AT).id,
        of_absence("v", "r", last_seen_at=AT, raised_at=AT).id,
        of_absence("w", "r", last_seen_at=AT, raised_at=AT).id,
        of_return("v", "r", absence=1, absent_at=AT, raised_at=AT).id,
        of_test(raised_at=AT).id,
    }
    assert len(same | others) == 6
    assert all(0 < one < 2**63 for one in same | others)


def test_an_alert_on_the_collector_is_raised_once_in_an_hour() -> None:
    """A condition that lasts has one alert in each hour; every test alert is another one."""
    instants = [AT + minutes * MINUTE_US for minutes in (0, 59, 60)]
    first, same, next_hour = (of_collector_clock("no time", raised_at=at).id for at in instants)
    assert first == same != next_hour
    assert len({of_test(raised_at=at).id for at in instants}) == 3


def test_a_certificate_that_ends_is_raised_three_times() -> None:
    """Three weeks, a week and a day before its end, and after it, a certificate has an alert; each once."""
    expires_at = 1_795_000_000_000_000
    days = (30, 22, 20, 15, 8, 6, 2, 0.5, -1)
    found = [
        of_certificate("c", "sha256:1", expires_at=expires_at, raised_at=expires_at - round(left * DAY_US))
        for left in days
    ]
    assert [message is not None for message in found] == [False, False, *[True] * 7]
    assert len({message.id for message in found if message}) == 3
    assert [message.sentence.partition(":")[0] for message in (found[2], found[-1]) if message] == [
        "the certificate of the collector ends in 20 d",
        "the certificate of the collector has ended",
    ]


def test_text_that_is_no_kind_is_an_error() -> None:
    """The kind of an alert is a name."""
    with pytest.raises(ValueError, match="No kind"):
        AlertKind("No kind")


def test_an_incident_is_one_thread() -> None:
    """An incident is one thread, and so are absence and return; each switch is a problem of its own."""
    alerts = (fails("openai/a"), fails("openai/a", scope="all"), acknowledged("openai/a"), recovers("openai/a"))
    topics = [topic_of(one) for one in alerts]
    assert {(one.dedup_key, one.kind, one.group) for one in topics} == {
        (fails("openai/a").details["incident"], AlertKind.TARGET_FAILING, "target_failing openai")
    }
    assert [one.action for one in topics] == [Action.BEGIN, Action.BEGIN, Action.ACKNOWLEDGE, Action.END]
    assert [one.severity for one in topics[:2]] == [Severity.ERROR, Severity.CRITICAL]
    absence = of_absence("v", "r", last_seen_at=AT, raised_at=AT)
    back = of_return("v", "r", absence=absence.id, absent_at=AT, raised_at=AT)
    assert topic_of(absence).dedup_key == topic_of(back).dedup_key == alert_name(absence.id)
    assert topic_of(absence).group == topic_of(back).group == "vantage_absent r"
    assert [topic_of(one).action for one in (absence, back)] == [Action.BEGIN, Action.END]
    first, second = topic_of(switches()), topic_of(switches(at=AT + 1))
    assert first.dedup_key != second.dedup_key
    assert first.group == second.group
    assert first.action is Action.EVENT


def test_each_kind_has_a_topic() -> None:
    """Every kind of alert has an action and a severity."""
    for kind in AlertKind:
        message = switches()
        object.__setattr__(message, "kind", kind)
        object.__setattr__(message, "details", {"failure": "target_failing"})
        assert topic_of(message).dedup_key
