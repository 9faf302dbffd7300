-- Vantages and regions.

-- Register a vantage; registering it again changes nothing.
-- name: register_vantage
INSERT INTO vantage (id, name, region, first_seen_at, last_seen_at)
VALUES (%(id)s, %(name)s, %(region)s, %(seen_at)s, %(seen_at)s)
ON CONFLICT DO NOTHING

-- One vantage, with the region that it was registered with.
-- name: vantage_by_id
SELECT id, name, region, first_seen_at, last_seen_at
FROM vantage
WHERE id = %(id)s

-- All vantages.
-- name: vantages
SELECT id, name, region, first_seen_at, last_seen_at
FROM vantage
ORDER BY name

-- The instants of the newest push and of the newest push with samples.
-- name: newest_receipts
SELECT max(last_seen_at) AS push_at, max(newest_sample_at) AS samples_at
FROM vantage

-- All vantages with the heartbeat of their newest push, and the ledger's count of samples in the epoch of this heartbeat.
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
    rounds_missed,
    missing_keys,
    refused_targets,
    stopped,
    CASE
        WHEN duplicate_last_at - duplicate_first_at >= interval '45 seconds'
            AND duplicate_last_at BETWEEN %(now_at)s - interval '10 minutes' AND %(now_at)s + interval '5 minutes'
            THEN duplicate_last_at
    END AS duplicate_at
FROM vantage
ORDER BY region, name

-- The spend that every agent last reported.
-- name: spenders
SELECT name, region, spend
FROM vantage
ORDER BY region, name

-- The agent that delivers for a vantage, by its epoch, and the last one that was refused.
-- name: owner
SELECT epoch, last_seen_at, duplicate_epoch, duplicate_first_at, duplicate_last_at, earlier_rounds_until
FROM vantage
WHERE id = %(id)s

-- The agents that deliver for some vantages.
-- name: deliverers
SELECT id, epoch, earlier_rounds_until
FROM vantage
WHERE id = ANY(%(ids)s::bigint[])

-- Keep other agents from delivering for some vantages until this transaction ends. In one order, or two collectors
-- could wait for each other.
-- name: lock_vantages
SELECT id, epoch, stored_rounds_until, earlier_rounds_until
FROM vantage
WHERE id = ANY(%(ids)s::bigint[])
ORDER BY id
FOR UPDATE

-- Record that an agent was refused because another one delivers for its vantage.
-- name: record_duplicate
UPDATE vantage
SET duplicate_epoch = %(epoch)s, duplicate_first_at = %(first_at)s, duplicate_last_at = %(last_at)s
WHERE id = %(id)s

-- The vantages with a second agent that was refused a moment ago, and for longer than a restart takes.
-- name: duplicates
SELECT name, region, duplicate_epoch, duplicate_first_at
FROM vantage
WHERE duplicate_last_at - duplicate_first_at >= interval '45 seconds'
    AND duplicate_last_at BETWEEN %(now_at)s - interval '10 minutes' AND %(now_at)s + interval '5 minutes'

-- Record the heartbeats of the newest pushes of agents; `samples_at` is the instant at which samples were stored, if
-- any. Instants in the future are from a collector whose clock was wrong, and are replaced. Stored samples are added to
-- the count of the agent's epoch; -1 marks a new epoch, whose count has to be made. With a new epoch, an agent takes over.
-- Intervals are added before, because Citus adds none to columns in an UPDATE.
-- name: record_heartbeat
UPDATE vantage
SET last_seen_at = recorded.seen_at,
    epoch = coalesce(nullif(recorded.epoch, 0), vantage.epoch),
    newest_sample_at = CASE
        WHEN vantage.newest_sample_at > recorded.future_at THEN recorded.samples_at
        ELSE greatest(vantage.newest_sample_at, recorded.samples_at)
    END,
    agent_version = recorded.agent_version,
    plan_version = recorded.plan_version,
    spool_depth = recorded.spool_depth,
    spool_oldest_at = recorded.spool_oldest_at,
    dropped = recorded.dropped,
    next_heartbeat_at = recorded.next_heartbeat_at,
    finished = recorded.finished,
    stored = recorded.stored,
    quarantined = recorded.quarantined,
    rounds_missed = recorded.rounds_missed,
    clock_offset_us = recorded.clock_offset_us,
    clock_uncertainty_us = recorded.clock_uncertainty_us,
    loop_lag_us = recorded.loop_lag_us,
    refused_plan_version = recorded.refused_plan_version,
    refused_plan_reason = recorded.refused_plan_reason,
    missing_keys = recorded.missing_keys,
    refused_targets = recorded.refused_targets,
    stopped = recorded.stopped,
    spend = recorded.spend,
    stored_rounds_until = greatest(vantage.stored_rounds_until, recorded.newest_round_at),
    earlier_rounds_until = CASE
        WHEN recorded.epoch = 0 OR recorded.epoch IS NOT DISTINCT FROM vantage.epoch THEN vantage.earlier_rounds_until
        ELSE vantage.stored_rounds_until
    END,
    ledgered = CASE
        WHEN recorded.epoch = 0 OR recorded.epoch IS NOT DISTINCT FROM vantage.epoch THEN vantage.ledgered + recorded.ledgered
        ELSE -1
    END
FROM unnest(
    %(id)s::bigint[], %(seen_at)b::timestamptz[], %(epoch)s::bigint[], %(ledgered)s::bigint[],
    %(samples_at)b::timestamptz[],
    %(agent_version)s::text[], %(plan_version)s::bigint[], %(spool_depth)s::bigint[],
    %(spool_oldest_at)b::timestamptz[], %(dropped)s::jsonb[], %(next_heartbeat_at)b::timestamptz[],
    %(finished)s::bigint[], %(stored)s::bigint[], %(quarantined)s::bigint[], %(rounds_missed)s::bigint[],
    %(clock_offset_us)s::bigint[], %(clock_uncertainty_us)s::bigint[], %(loop_lag_us)s::bigint[],
    %(refused_plan_version)s::bigint[], %(refused_plan_reason)s::text[], %(missing_keys)s::text[],
    %(refused_targets)s::text[], %(stopped)s::boolean[], %(spend)s::jsonb[], %(epoch_history)s::jsonb[],
    %(newest_round_at)b::timestamptz[], %(silent_since_at)b::timestamptz[], %(future_at)b::timestamptz[]
) AS recorded (
    id, seen_at, epoch, ledgered, samples_at, agent_version, plan_version, spool_depth, spool_oldest_at, dropped,
    next_heartbeat_at, finished, stored, quarantined, rounds_missed, clock_offset_us, clock_uncertainty_us, loop_lag_us,
    refused_plan_version, refused_plan_reason, missing_keys, refused_targets, stopped, spend, epoch_history,
    newest_round_at, silent_since_at, future_at
)
WHERE vantage.id = recorded.id
    AND (vantage.last_seen_at <= recorded.seen_at OR vantage.last_seen_at > recorded.future_at)
    AND (
        recorded.epoch_history IS NULL
        OR vantage.epoch IS NULL
        OR recorded.epoch_history ? vantage.epoch::text
        OR vantage.last_seen_at < recorded.silent_since_at
        OR vantage.last_seen_at > recorded.future_at
    )
RETURNING vantage.id, vantage.epoch, vantage.earlier_rounds_until, vantage.ledgered < 0 AS is_new

-- The ledger's count of samples in each vantage's epoch.
-- name: count_ledgers
SELECT vantage_id AS id, sum(stored)::bigint AS ledgered
FROM ingest_batch
JOIN unnest(%(id)s::bigint[], %(epoch)s::bigint[]) AS asked (vantage_id, epoch) USING (vantage_id, epoch)
GROUP BY vantage_id

-- Set the counts of new epochs.
-- name: set_ledgered
UPDATE vantage
SET ledgered = recorded.ledgered
FROM unnest(%(id)s::bigint[], %(ledgered)s::bigint[]) AS recorded (id, ledgered)
WHERE vantage.id = recorded.id

-- Add samples that were stored with pushes whose heartbeats are older than the recorded ones.
-- name: add_ledgered
UPDATE vantage
SET ledgered = vantage.ledgered + recorded.ledgered
FROM unnest(%(id)s::bigint[], %(epoch)s::bigint[], %(ledgered)s::bigint[]) AS recorded (id, epoch, ledgered)
WHERE vantage.id = recorded.id AND vantage.epoch = recorded.epoch

-- Record the newest rounds that were stored with such pushes.
-- name: raise_newest_rounds
UPDATE vantage
SET stored_rounds_until = greatest(vantage.stored_rounds_until, recorded.newest_round_at)
FROM unnest(%(id)s::bigint[], %(newest_round_at)b::timestamptz[]) AS recorded (id, newest_round_at)
WHERE vantage.id = recorded.id

-- Register a region.
-- name: register_region
INSERT INTO region (name)
VALUES (%(name)s)
ON CONFLICT DO NOTHING

-- All regions.
-- name: regions
SELECT name
FROM region
ORDER BY name
