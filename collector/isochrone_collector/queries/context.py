from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.analysis.differential.decision import Margin, margin_of
from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.names import display_names, matching
from isochrone_collector.plans.service import Plans
from isochrone_collector.region_places import RegionPlace
from isochrone_collector.store import plans as plan_table
from isochrone_collector.store import vantages
from isochrone_collector.store.plans import TargetRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.probe_queries import Scope
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.durations import MAX_INSTANT_AT
from isochrone_wire.fleet import TargetList
from isochrone_wire.model import DAY_US

MAX_WINDOW_US = 400 * DAY_US
# A pattern takes half a millisecond for a thousand targets.
_MAX_NAMES = 200
_MAX_PATTERN_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """The context of all queries. `clock` returns microseconds since the epoch; `webhook` is true if alerts are
    delivered; `paused` returns why jobs are paused, if they are; `certificate` returns the alert on the end of the
    certificate that is due at an instant, if there is one; `region_places` are those that the operator states.
    """

    database: Database
    plans: Plans
    clock: Callable[[], int]
    webhook: bool = False
    paused: Callable[[], str] = str
    certificate: Callable[[int], AlertMessage | None] = lambda _at: None
    region_places: Mapping[str, RegionPlace] = field(default_factory=dict)

    def targets(self) -> TargetList:
        """Return the targets of the plan in force."""
        plan = self.plans.current
        if plan is None:
            return TargetList(plan_version=0, baseline="")
        return TargetList(plan_version=plan.version, baseline=plan.baseline, targets=plan.targets)

    def margin(self, metric: Metric) -> Margin:
        """Return the smallest difference of a metric that matters, by the plan in force."""
        return margin_of(metric, self.plans.current.margins if self.plans.current else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSelection:
    """A selection with its names resolved: its targets by id, each with a distinct name."""

    scope: Scope
    names: dict[int, str]
    targets: dict[int, TargetRow]
    known_regions: list[str]


async def resolve(connection: Connection, selection: Selection) -> ResolvedSelection:
    """Resolve a selection and check its window. Raises `BadRequest` and `UnknownName`."""
    check_window(selection.window)
    return await resolve_names(connection, selection)


async def resolve_names(connection: Connection, selection: Selection) -> ResolvedSelection:
    """Resolve a selection without checking its window. Raises `BadRequest` and `UnknownName`."""
    regions = await vantages.regions(connection)
    check_regions(selection.regions, regions)
    known = await plan_table.targets(connection)
    names = display_names({row.id: (row.name, row.last_version) for row in known})
    wanted = _match_targets(selection.targets, sorted(names.values()))
    targets = {row.id: row for row in known if wanted is None or names[row.id] in wanted}
    scope = Scope(window=selection.window, target_ids=tuple(targets), regions=selection.regions or None)
    return ResolvedSelection(scope=scope, names=names, targets=targets, known_regions=regions)


def check_regions(names: Sequence[str], known: list[str]) -> None:
    """Check region names. Raises `BadRequest` for too many, and `UnknownName`."""
    _check_size(names)
    for name in names:
        if name not in known:
            raise UnknownName.among("region", name, known)


def check_window(window: Window) -> None:
    """Check a window. Raises `BadRequest` if it is missing, empty or too long."""
    if not 0 <= window.from_at < window.until_at <= MAX_INSTANT_AT:
        raise BadRequest("the window is empty or missing: from_at must be before until_at")
    if window.until_at - window.from_at > MAX_WINDOW_US:
        raise BadRequest(f"the window is longer than {MAX_WINDOW_US // DAY_US} days")


def _check_size(names: Sequence[str]) -> None:
    """Raise `BadRequest` for names that would keep the event loop busy: each is compared with all that are known."""
    if len(names) > _MAX_NAMES or max(map(len, names), default=0) > _MAX_PATTERN_CHARS:
        raise BadRequest(f"a selection has at most {_MAX_NAMES} names of at most {_MAX_PATTERN_CHARS} characters")


def _match_targets(patterns: Sequence[str], known: Sequence[str]) -> set[str] | None:
    if not patterns:
        return None
    _check_size(patterns)
    wanted: set[str] = set()
    for pattern in patterns:
        found = matching(pattern, known)
        if not found:
            raise UnknownName.among("target", pattern, known)
        wanted.update(found)
    return wanted
