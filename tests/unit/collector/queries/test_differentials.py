"""Participation of regions, and the reasons not to compare one."""

from isochrone_collector.analysis.differential.participation import Participation, PlanSpan
from isochrone_collector.queries import differentials
from isochrone_collector.store.vantages import VantageRow
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US
from testdata.columns import Row, probes

NOW_AT = 1_795_219_200_000_000


def test_machines_that_were_replaced_do_not_make_a_region_undecided() -> None:
    """If two of three vantages left long ago, the rounds of the third are full coverage."""
    gone = [
        VantageRow(
            id=1, name="sg-1", region="sg", first_seen_at=NOW_AT - 300 * DAY_US, last_seen_at=NOW_AT - 200 * DAY_US
        ),
        VantageRow(
            id=2, name="sg-2", region="sg", first_seen_at=NOW_AT - 200 * DAY_US, last_seen_at=NOW_AT - 100 * DAY_US
        ),
    ]
    here = VantageRow(id=3, name="sg-3", region="sg", first_seen_at=NOW_AT - 100 * DAY_US, last_seen_at=NOW_AT)
    window = Window(from_at=NOW_AT - 60 * MINUTE_US, until_at=NOW_AT)
    seen = probes([Row(7, "sg", window.from_at + n * MINUTE_US, 1.0, vantage=3) for n in range(60)])
    spans = [PlanSpan(from_at=0, until_at=None, every_us={7: MINUTE_US})]
    found = differentials.participations(seen, [*gone, here], spans, target_ids=[7], window=window, now_at=NOW_AT)
    assert found == {(7, "sg"): Participation(tried=60, independent=60.0, recorded=60, planned=60)}
    assert differentials.unfit(found, {}) == {}


def test_who_nearly_always_fails_is_not_compared() -> None:
    """A region whose probes nearly all fail is unfit for that target, however fast the others were."""
    found = {
        (7, "sg"): Participation(tried=100, failed=95, recorded=100, planned=100),
        (7, "us"): Participation(tried=100, failed=5),
    }
    assert differentials.unfit(found, {}) == {(7, "sg"): "most probes of sg failed"}
