-- Vantages and regions.

-- A vantage introduces itself once; a second introduction changes nothing.
-- name: register_vantage
INSERT INTO vantage (id, name, region, first_seen_at, last_seen_at)
VALUES (%(id)s, %(name)s, %(region)s, %(seen_at)s, %(seen_at)s)
ON CONFLICT DO NOTHING

-- The region a vantage introduced itself with.
-- name: vantage_by_id
SELECT id, name, region, first_seen_at, last_seen_at
FROM vantage
WHERE id = %(id)s

-- All vantages.
-- name: vantages
SELECT id, name, region, first_seen_at, last_seen_at
FROM vantage
ORDER BY name

-- All vantages with the vitals of their newest push, and what the ledger has of the epoch these are counted over.
-- name: vantage_states
SELECT
    name,
    region,
    first_seen_at,
    last_seen_at,
    newest_sample_at,
    next_heartbeat_at,
    agent_version,
    plan_version,
    refused_plan_version,
    refused_plan_reason,
    spool_depth,
    spool_oldest_at,
    quarantined,
    dropped,
    clock_offset_us,
    clock_uncertainty_us,
    loop_lag_us,
    finished,
    ledgered,
    rounds_missed
FROM vantage
ORDER BY region, name

-- What every agent last said it had spent.
-- name: spenders
SELECT name, region, spend
FROM vantage
ORDER BY region, name

-- How agents are doing, as of their newest pushes; `samples_at` is when samples of theirs were stored, if any were.
-- What was stored of an agent's epoch adds up; when another epoch begins it is to be counted anew.
-- name: record_vitals
UPDATE vantage
SET last_seen_at = told.seen_at,
    epoch = coalesce(nullif(told.epoch, 0), vantage.epoch),
    newest_sample_at = greatest(vantage.newest_sample_at, told.samples_at),
    agent_version = told.agent_version,
    plan_version = told.plan_version,
    spool_depth = told.spool_depth,
    spool_oldest_at = told.spool_oldest_at,
    dropped = told.dropped,
    next_heartbeat_at = told.next_heartbeat_at,
    finished = told.finished,
    stored = told.stored,
    quarantined = told.quarantined,
    rounds_missed = told.rounds_missed,
    clock_offset_us = told.clock_offset_us,
    clock_uncertainty_us = told.clock_uncertainty_us,
    loop_lag_us = told.loop_lag_us,
    refused_plan_version = told.refused_plan_version,
    refused_plan_reason = told.refused_plan_reason,
    spend = told.spend,
    ledgered = CASE
        WHEN told.epoch = 0 OR told.epoch IS NOT DISTINCT FROM vantage.epoch THEN vantage.ledgered + told.ledgered
        ELSE -1
    END
FROM unnest(
    %(id)s::bigint[], %(seen_at)b::timestamptz[], %(epoch)s::bigint[], %(ledgered)s::bigint[],
    %(samples_at)b::timestamptz[],
    %(agent_version)s::text[], %(plan_version)s::bigint[], %(spool_depth)s::bigint[],
    %(spool_oldest_at)b::timestamptz[], %(dropped)s::jsonb[], %(next_heartbeat_at)b::timestamptz[],
    %(finished)s::bigint[], %(stored)s::bigint[], %(quarantined)s::bigint[], %(rounds_missed)s::bigint[],
    %(clock_offset_us)s::bigint[], %(clock_uncertainty_us)s::bigint[], %(loop_lag_us)s::bigint[],
    %(refused_plan_version)s::bigint[], %(refused_plan_reason)s::text[], %(spend)s::jsonb[]
) AS told (
    id, seen_at, epoch, ledgered, samples_at, agent_version, plan_version, spool_depth, spool_oldest_at, dropped,
    next_heartbeat_at, finished, stored, quarantined, rounds_missed, clock_offset_us, clock_uncertainty_us, loop_lag_us,
    refused_plan_version, refused_plan_reason, spend
)
WHERE vantage.id = told.id AND vantage.last_seen_at <= told.seen_at
RETURNING vantage.id, vantage.ledgered < 0 AS is_new

-- What the ledger has of each vantage's epoch.
-- name: count_ledgers
SELECT vantage_id AS id, sum(stored)::bigint AS ledgered
FROM ingest_batch
JOIN unnest(%(id)s::bigint[], %(epoch)s::bigint[]) AS asked (vantage_id, epoch) USING (vantage_id, epoch)
GROUP BY vantage_id

-- The counts of epochs that began.
-- name: set_ledgered
UPDATE vantage
SET ledgered = told.ledgered
FROM unnest(%(id)s::bigint[], %(ledgered)s::bigint[]) AS told (id, ledgered)
WHERE vantage.id = told.id

-- What was stored with pushes whose vitals are not news any more counts all the same.
-- name: add_ledgered
UPDATE vantage
SET ledgered = vantage.ledgered + told.ledgered
FROM unnest(%(id)s::bigint[], %(epoch)s::bigint[], %(ledgered)s::bigint[]) AS told (id, epoch, ledgered)
WHERE vantage.id = told.id AND vantage.epoch = told.epoch

-- A region that somebody named.
-- name: register_region
INSERT INTO region (name)
VALUES (%(name)s)
ON CONFLICT DO NOTHING

-- All regions ever named.
-- name: regions
SELECT name
FROM region
ORDER BY name
