"""What every answer starts from: the desk it is asked at, and the question with its names looked up."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.names import display_names, matching, unknown
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import plans as plan_table
from isochrone_collector.store import vantages
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.rows import TargetRow
from isochrone_wire.answers import Metric, Selection, TargetList, Window
from isochrone_wire.model import DAY_US

MAX_WINDOW_US = 400 * DAY_US
# Instants a reader may speak of: from 1970 to the year 9999.
_LAST_AT = 253_402_300_799_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """What answers are made from; `clock` gives the instant, in microseconds since the epoch. `webhook` is whether
    alerts are told anybody.
    """

    database: Database
    plans: Plans
    clock: Callable[[], int]
    webhook: bool = False

    def targets(self) -> TargetList:
        """The targets of the plan in force."""
        plan = self.plans.current
        if plan is None:
            return TargetList(plan_version=0, baseline="")
        return TargetList(plan_version=plan.version, baseline=plan.baseline, targets=plan.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSelection:
    """A selection with its names looked up: the targets it is about by id, each under a distinct name."""

    scope: Scope
    names: dict[int, str]
    targets: dict[int, TargetRow]
    known_regions: list[str]


async def resolve(connection: Connection, selection: Selection) -> ResolvedSelection:
    """The question of a selection with a window. Raises `BadRequest` and `UnknownName`."""
    check_window(selection.window)
    return await resolve_names(connection, selection)


async def resolve_names(connection: Connection, selection: Selection) -> ResolvedSelection:
    """The question of a selection whose window is not looked at. Raises `UnknownName`."""
    regions = await vantages.regions(connection)
    check_regions(selection.regions, regions)
    known = await plan_table.targets(connection)
    names = display_names({row.id: (row.name, row.last_version) for row in known})
    wanted = _match_targets(selection.targets, sorted(names.values()))
    targets = {row.id: row for row in known if wanted is None or names[row.id] in wanted}
    scope = Scope(window=selection.window, target_ids=tuple(targets), regions=selection.regions or None)
    return ResolvedSelection(scope=scope, names=names, targets=targets, known_regions=regions)


def check_regions(names: Iterable[str], known: list[str]) -> None:
    """Raises `UnknownName` for a region that nobody ever named."""
    for name in names:
        if name not in known:
            raise UnknownName.among("region", name, known)


def metric_of(name: str) -> Metric:
    """The metric of that name, TTFT of none. Raises `BadRequest`."""
    try:
        return Metric(name or Metric.TTFT.value)
    except ValueError:
        raise BadRequest(unknown("metric", name, [metric.value for metric in Metric])) from None


def check_window(window: Window) -> None:
    """Raises `BadRequest` for a window that is missing, empty or longer than any answer."""
    if not 0 <= window.from_at < window.until_at <= _LAST_AT:
        raise BadRequest("the window is empty or missing: from_at must lie before until_at")
    if window.until_at - window.from_at > MAX_WINDOW_US:
        raise BadRequest(f"the window is longer than {MAX_WINDOW_US // DAY_US} days")


def _match_targets(patterns: Sequence[str], known: Sequence[str]) -> set[str] | None:
    """The names the patterns ask for; `None` when they ask for all."""
    if not patterns:
        return None
    wanted: set[str] = set()
    for pattern in patterns:
        found = matching(pattern, known)
        if not found:
            raise UnknownName.among("target", pattern, known)
        wanted.update(found)
    return wanted
