"""The newest samples of a selection."""

from isochrone_collector.errors import BadRequest
from isochrone_collector.observe.desk import Desk, look_up
from isochrone_collector.store import readers
from isochrone_collector.store.rows import stored_sample
from isochrone_wire.answers import Selection, StoredSample

MAX_SAMPLES = 10_000
DEFAULT_SAMPLES = 1_000


async def samples(desk: Desk, selection: Selection, *, limit: int) -> list[StoredSample]:
    """The newest samples of a selection, newest first; `limit` 0 means 1 000, and 10 000 is the most."""
    if not 0 <= limit <= MAX_SAMPLES:
        raise BadRequest(f"limit {limit} is outside 0 to {MAX_SAMPLES}")
    async with desk.database.connection() as connection:
        question = await look_up(connection, selection)
        records = await readers.samples(connection, question.scope, limit=limit or DEFAULT_SAMPLES)
    return [stored_sample(record, target=question.names[record["target_id"]]) for record in records]
