"""Events of new data, for open pages. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Topic(StrEnum):
    """Kinds of data: samples were stored, route tables were published, alerts were raised, a plan came into force."""

    SAMPLES = "samples"
    TABLES = "tables"
    ALERTS = "alerts"
    PLAN = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """The topics with new data, none in a heartbeat, as of `sent_at`. `generation` is the newest of all route
    tables; the database cannot be read since `stale_since_at`, unless that is `None`. A page should ask again no sooner
    than `refresh_us` after its last request: the more pages are open, the longer.
    """

    topics: tuple[Topic, ...]
    sent_at: int
    refresh_us: int
    generation: int
    stale_since_at: int | None
