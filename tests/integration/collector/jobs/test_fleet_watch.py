"""Alerts from the heartbeats of vantages: budgets and clocks."""

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_collector.store import alerts
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Heartbeat, Spend, Vantage, day_of

PLAN = """\
baseline: us
targets: [{model: a, provider: sim, base_url: http://h}]
budgets: [{provider: sim, requests_per_day: 10}]
"""
US = Vantage(name="us-1", region="us")


async def test_a_used_up_budget_and_a_wrong_clock_are_raised_once(local: InProcessCollector) -> None:
    """The heartbeat of a push raises an alert when it shows one of both, once a day however often they are read."""
    await local.turn_to(DAY_AT)
    assert (await local.plans.apply(PLAN, dry_run=False, applied_by="a test")).problems == ()
    watch = local.fleet_watch()
    for requests, offset_s in ((9, 2), (10, 61), (10, 62)):
        spend = (Spend(provider="sim", day_at=day_of(DAY_AT), requests=requests),)
        heartbeat = Heartbeat(
            epoch=1, spend=spend, clock_offset_us=offset_s * SECOND_US, clock_uncertainty_us=SECOND_US
        )
        local.clock.at += SECOND_US
        await local.push(US, [local.sample(local.clock.at)], heartbeat=heartbeat)
        await watch.run()
    window = Window(from_at=DAY_AT - DAY_US, until_at=DAY_AT + DAY_US)
    async with local.database.connection() as connection:
        found = await alerts.of_window(connection, window)
    assert sorted((alert.kind.value, alert.subject) for alert in found) == [
        ("budget_exhausted", "sim from us-1"),
        ("clock_wrong", "clock of us-1"),
    ]


async def test_the_clocks_are_read_once_for_all_jobs(local: InProcessCollector) -> None:
    """The incident detection gets the vantages that the last run distrusts, and reads them itself only if that was
    longer than a minute ago.
    """
    await local.turn_to(DAY_AT)
    assert (await local.plans.apply(PLAN, dry_run=False, applied_by="a test")).problems == ()
    watch = local.fleet_watch()

    async def push(offset_s: int) -> None:
        local.clock.at += SECOND_US
        heartbeat = Heartbeat(epoch=1, clock_offset_us=offset_s * SECOND_US, clock_uncertainty_us=SECOND_US)
        await local.push(US, [local.sample(local.clock.at)], heartbeat=heartbeat)

    async with local.database.connection() as connection:
        await push(61)
        assert await watch.distrusted(connection, now_at=local.clock.at) == {US.id}
        await push(0)
        assert await watch.distrusted(connection, now_at=local.clock.at) == {US.id}
        assert await watch.distrusted(connection, now_at=local.clock.at + MINUTE_US) == set()
        await push(61)
        await watch.run()
        assert await watch.distrusted(connection, now_at=local.clock.at) == {US.id}
