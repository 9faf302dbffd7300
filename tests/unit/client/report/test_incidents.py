"""Incidents: which changes, failures and absences are incidents, and how long they last."""

from dataclasses import replace
from typing import Any

from fixtures.fake_collector import COVERAGE, NOW_AT, STEPPED, VANTAGES, WINDOW
from isochrone_client.report.incidents import Incident, absent_vantages, find_incidents, of_place, page
from isochrone_wire.answers import Differential, DifferentialList, Metric
from isochrone_wire.fleet import CoverageList
from isochrone_wire.insights import AlertKind, DriftEvent, DriftList
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.queries.series import Series, SeriesList
from testdata.insights import ALERTS, DRIFT, INCIDENTS, SERIES

(RISE,) = DRIFT.events


def found(**answers: Any) -> tuple[Incident, ...]:
    """The incidents of these answers."""
    return find_incidents(
        **(dict.fromkeys(("drift", "failures", "coverage", "series", "alerts", "vantages", "differences")) | answers)
    )


def drift(*events: DriftEvent) -> DriftList:
    """An answer with these changes."""
    return replace(DRIFT, events=events)


def test_a_change_of_level_lasts() -> None:
    """A change is named with its size and both levels, and lasts unless the level returns."""
    (one,) = found(drift=drift(RISE))
    assert (one.place, one.from_at, one.until_at) == ("openai/gpt-5-mini from us-east-2", RISE.changed_at, None)
    assert (one.sentence, one.is_worse) == ("is slower by 80 ms: ttft 240 → 320 ms", True)


def test_a_return_ends_a_change() -> None:
    """The change back to about the former level is the end of the incident, not another one."""
    back_at = RISE.changed_at + 10 * MINUTE_US
    back = replace(RISE, changed_at=back_at, before=320_400.0, after=244_000.0)
    (one,) = found(drift=drift(back, RISE))
    assert (one.until_at, one.sentence) == (back_at, "was slower by 80 ms: ttft 240 → 320 ms")
    further = replace(back, after=420_000.0)
    assert len(found(drift=drift(further, RISE))) == 2


def test_less_speed_is_worse() -> None:
    """For a rate, a lower level is the slower one."""
    (one,) = found(drift=drift(replace(RISE, metric=Metric.TOKENS_PER_SECOND, before=60.0, after=40.0)))
    assert (one.sentence, one.is_worse) == ("is slower by 20 tokens/s: speed 60 → 40 tokens/s", True)


def stepped(*rows: Differential) -> DifferentialList:
    """An answer with these differentials."""
    return DifferentialList(window=WINDOW, differentials=rows)


def test_a_step_of_a_difference_lasts() -> None:
    """A step within the window is an incident of the region that moved, and lasts unless the level returns."""
    (one,) = found(differences=stepped(STEPPED))
    assert (one.place, one.from_at) == ("openai/gpt-5-mini from ap-southeast-1", STEPPED.levels[1].from_at)
    assert (one.sentence, one.until_at) == ("is slower by 400 ms: ttft 235 → 635 ms", None)
    before, level = STEPPED.levels
    back = replace(before, from_at=level.until_at + SECOND_US, until_at=level.until_at + MINUTE_US)
    (ended,) = found(differences=stepped(replace(STEPPED, levels=(before, level, back))))
    assert (ended.sentence, ended.until_at) == ("was slower by 400 ms: ttft 235 → 635 ms", back.from_at)


def test_a_step_of_the_baseline_is_one_incident() -> None:
    """If the baseline moved, all regions have a step, and it is one incident of the baseline."""
    before, level = STEPPED.levels
    moved = (before, replace(level, shift=-365_000.0, baseline_median=600_000.0, region_median=235_000.0))
    rows = [replace(STEPPED, region=region, levels=moved) for region in ("a", "b")]
    (one,) = found(differences=stepped(*rows))
    assert (one.place, one.sentence) == (
        "openai/gpt-5-mini from us-east-2",
        "is slower by 400 ms: ttft 200 → 600 ms",
    )


def test_a_known_change_is_not_repeated() -> None:
    """A step for which a lasting change is known is one incident; a step that does not matter is none."""
    event = replace(RISE, region="ap-southeast-1", changed_at=STEPPED.levels[1].from_at - MINUTE_US)
    (one,) = found(drift=drift(event), differences=stepped(STEPPED))
    assert one.from_at == event.changed_at
    assert found(differences=stepped(replace(STEPPED, margin=500_000.0))) == ()


def test_failures_of_most_probes_are_an_outage() -> None:
    """Neighbouring buckets in which at least half of the probes failed are one outage, with its counts."""
    (one,) = found(series=SERIES)
    assert (one.target, one.region) == ("deepseek/deepseek-v4-flash", "ap-southeast-1")
    assert one.sentence == "failed: 120 of 120 probes"
    assert one.until_at == one.from_at + 4 * SERIES.bucket_us


def test_an_outage_at_the_end_lasts() -> None:
    """An outage of the newest buckets has no end yet; a few failed probes are none."""
    line = SERIES.series[0]

    def ending(failed: int) -> SeriesList:
        last = replace(line.points[-1], ok=0, failed=failed)
        return replace(SERIES, series=(Series(target="t", region="r", points=(line.points[0], last)),))

    (one,) = found(series=ending(3))
    assert (one.until_at, one.sentence) == (None, "fails: 3 of 3 probes")
    assert found(series=ending(2)) == ()


def test_failing_targets_are_incidents() -> None:
    """What the collector found is an incident each: the open ones first, with regions, classes and end."""
    incidents = found(failures=INCIDENTS)
    assert [(one.place, one.sentence, one.until_at is None) for one in incidents] == [
        (
            "moonshot/kimi-k2.5 from ap-southeast-1, us-east-2",
            "fails: 31 http_error 503, 4 timed_out",
            True,
        ),
        ("openai/gpt-6-mini from us-east-2", "has never worked: 24 http_error 404", True),
        ("openai/gpt-5-mini from us-east-2", "was throttled: 11 throttled 429", False),
    ]
    ended = INCIDENTS.incidents[1]
    assert (incidents[2].from_at, incidents[2].until_at) == (ended.first_failed_at, ended.recovered_at)
    assert [place for place, _ in of_place(incidents, target=incidents[0].target, regions=("us-east-2",))] == [1]


def test_only_failures_of_the_selection_are_shown() -> None:
    """Of targets without coverage in the answer, which the selection excludes, no failure is shown."""
    coverage = CoverageList(window=WINDOW, coverage=COVERAGE[:1])
    assert [one.target for one in found(failures=INCIDENTS, coverage=coverage)] == ["openai/gpt-5-mini"]


def test_a_known_failure_is_not_repeated_as_an_outage() -> None:
    """An outage of a series is left out if a failure of the target, from the region and at the time, is known."""
    (outage,) = found(series=SERIES)
    row = replace(
        INCIDENTS.incidents[0],
        subject=outage.target,
        first_failed_at=outage.from_at + MINUTE_US,
        recovered_at=outage.until_at,
    )

    def with_failure(**change: Any) -> list[str]:
        failures = replace(INCIDENTS, incidents=(replace(row, **change),))
        return [one.sentence.partition(":")[0] for one in found(series=SERIES, failures=failures)]

    assert with_failure() == ["failed"]
    assert with_failure(recovered_at=None) == ["fails"]
    assert len(with_failure(regions=("us-east-2",))) == 2
    assert len(with_failure(first_failed_at=(outage.until_at or 0) + MINUTE_US, recovered_at=None)) == 2
    assert len(with_failure(first_failed_at=0, recovered_at=outage.from_at - 1)) == 2


def test_an_absence_ends_with_the_return() -> None:
    """A vantage is absent from its alert until the alert of its return."""
    absence = next(alert for alert in ALERTS.alerts if alert.kind is AlertKind.VANTAGE_ABSENT)
    (one,) = found(alerts=ALERTS, vantages=VANTAGES)
    assert (one.place, one.sentence) == ("ohio-2 in us-east-2", "has sent no heartbeat for 9 min")
    assert one.until_at is None
    back = replace(absence, id=13, kind=AlertKind.VANTAGE_BACK, raised_at=absence.raised_at + MINUTE_US)
    (ended,) = found(alerts=replace(ALERTS, alerts=(back, absence)), vantages=VANTAGES)
    assert ended.until_at == back.raised_at


def test_a_vantage_is_reported_once() -> None:
    """A late vantage is not named again if its absence is an incident."""
    incidents = found(alerts=ALERTS, vantages=VANTAGES)
    assert [text.split()[0] for text in absent_vantages(VANTAGES, ())] == ["ohio-2", "sg-1"]
    assert [text.split()[0] for text in absent_vantages(VANTAGES, incidents)] == ["sg-1"]


def test_what_lasts_comes_first() -> None:
    """Incidents that last are the first, then the newest; their numbers are those of the rows."""
    incidents = found(drift=DRIFT, series=SERIES, alerts=ALERTS, vantages=VANTAGES)
    shown = page(incidents, now_at=NOW_AT)
    rows = [[column.text(row) for column in shown.columns] for row in shown.rows]
    assert [(row[0], row[1], row[4]) for row in rows] == [
        ("1", "ohio-2 in us-east-2", "still lasts"),
        ("2", "openai/gpt-5-mini from us-east-2", "still lasts"),
        ("3", "deepseek/deepseek-v4-flash from ap-southeast-1", "11-20 20:00"),
    ]
    assert all(one.from_at >= WINDOW.from_at for one in incidents)
