from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing.changes import Changes
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.xds.snapshots import Rejections, Snapshots

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The services behind the application. `metrics` is called in the event loop; its result is read in a thread."""

    publisher: Publisher
    changes: Changes
    plans: Plans
    query_context: QueryContext
    authenticator: Authenticator
    snapshots: Snapshots
    rejections: Rejections
    clock: Callable[[], int]
    metrics: Callable[[], "Iterable[Metric]"]
