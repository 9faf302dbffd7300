"""Open incidents and overdue deliveries for metrics. Every collector reads them; only the leader works on them."""

from collections.abc import Callable, Mapping, Sequence

from isochrone_collector.plans.service import Plans
from isochrone_collector.receivers import Receiver
from isochrone_collector.store.alerting import deliveries, incidents
from isochrone_collector.store.postgres.pool import Database
from isochrone_common.probe_metrics import labels_of
from isochrone_wire.model import SECOND_US

EVERY_US = 5 * SECOND_US

MAX_SERIES = 1_000
"""Series of open incidents, one per kind, target and failing region; the oldest incidents come first."""


class AlertState:
    """The open incidents of the targets of the plan in force, and the numbers of overdue deliveries, as of the newest
    run. `incidents` has the kind of each incident and the labels of probes, and `left_out` is the number of those above
    `MAX_SERIES`; `overdue` is by receiver, without what silences hold or what waits for its group.
    """

    def __init__(
        self, *, database: Database, plans: Plans, clock: Callable[[], int], receivers: Sequence[Receiver] = ()
    ) -> None:
        self._database = database
        self._plans = plans
        self._clock = clock
        self._receivers = receivers
        self.incidents: tuple[tuple[str, ...], ...] = ()
        self.left_out = 0
        self.overdue: Mapping[str, int] = {}

    async def run(self) -> None:
        """Read both. Raises `DatabaseUnavailable`; those of the last run stay then."""
        async with self._database.connection() as connection:
            rows = await incidents.open_ones(connection)
            due_by = {one.name: self._clock() - one.group_us for one in self._receivers}
            self.overdue = await deliveries.count_overdue(connection, due_by) if due_by else {}
        plan = self._plans.current
        targets = {target.id: target for target in plan.targets} if plan else {}
        found = [
            (row.kind, *labels_of(region, targets[row.target_id]))
            for row in rows
            if row.target_id in targets
            for region in row.failing
        ]
        self.incidents, self.left_out = tuple(found[:MAX_SERIES]), len(found[MAX_SERIES:])
