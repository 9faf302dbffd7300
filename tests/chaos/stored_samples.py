"""The samples in PostgreSQL after a run, by vantage."""

from collections import Counter, defaultdict

import psycopg

from chaos.journal import Key

_STORED = """
select v.name, s.target_id, (extract(epoch from s.round_at) * 1000000)::bigint, s.rows from (
    select vantage_id, target_id, round_at, count(*) as rows from (
        select vantage_id, target_id, round_at from sample
        union all select vantage_id, target_id, round_at from sample_late where reason <> 'already_stored'
    ) as everything group by 1, 2, 3
) as s join vantage as v on v.id = s.vantage_id
"""


async def stored(conninfo: str) -> defaultdict[str, Counter[Key]]:
    """Return the number of rows per sample, except rows set aside because their round is in `sample`: if it is not,
    the sample is lost.
    """
    found: defaultdict[str, Counter[Key]] = defaultdict(Counter)
    for vantage, target_id, round_at, rows in await _ask(conninfo, _STORED):
        found[str(vantage)][Key(int(target_id), int(round_at))] = int(rows)
    return found


async def _ask(conninfo: str, query: str) -> list[tuple[str | int, ...]]:
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        return await (await connection.execute(query)).fetchall()
