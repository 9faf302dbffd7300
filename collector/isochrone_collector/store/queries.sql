-- Every statement the collector sends, by name. Placeholders are %(name)s; {braces} are filled in by the module that
-- asks for the statement, from tables of its own and never from a request.

-- Acknowledged means on disk, also where the server's default says otherwise.
-- name: make_commits_durable
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'

-- The partitions that `sample` has now.
-- name: partitions
SELECT child.relname AS name
FROM pg_inherits
JOIN pg_class AS child ON child.oid = pg_inherits.inhrelid
WHERE pg_inherits.inhparent = 'sample'::regclass

-- One collector at a time changes what this key stands for; the lock ends with the transaction.
-- name: take_lock
SELECT pg_advisory_xact_lock(%(key)s)

-- Maintenance gives up rather than make ingest queue behind it.
-- name: wait_briefly_for_locks
SET LOCAL lock_timeout = '2s'

-- A table like `sample`, to be attached once it is complete.
-- name: create_partition
CREATE TABLE {partition} (LIKE sample INCLUDING ALL)

-- Attaching an empty table does not block reading or writing the others.
-- name: attach_partition
ALTER TABLE sample ATTACH PARTITION {partition} FOR VALUES FROM ({from_day}) TO ({until_day})

-- Claim a batch in the ledger; no row comes back when it was claimed before.
-- name: claim_batch
INSERT INTO ingest_batch (vantage_id, epoch, seq, samples, stored, late, rejections, received_at)
VALUES (%(vantage_id)s, %(epoch)s, %(seq)s, %(samples)s, %(stored)s, %(late)s, %(rejections)s, %(received_at)s)
ON CONFLICT DO NOTHING
RETURNING seq

-- What the ledger says of a batch that was claimed before.
-- name: claimed_batch
SELECT samples, stored, rejections
FROM ingest_batch
WHERE vantage_id = %(vantage_id)s AND epoch = %(epoch)s AND seq = %(seq)s

-- The hot path: rows of one batch, sorted by key.
-- name: copy_samples
COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)

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

-- How an agent is doing, as of its newest push.
-- name: note_vitals
UPDATE vantage
SET last_seen_at = %(seen_at)s,
    agent_version = %(agent_version)s,
    plan_version = %(plan_version)s,
    spool_depth = %(spool_depth)s,
    spool_oldest_at = %(spool_oldest_at)s,
    dropped = %(dropped)s,
    next_heartbeat_at = %(next_heartbeat_at)s
WHERE id = %(id)s AND last_seen_at <= %(seen_at)s

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

-- The plan in force.
-- name: newest_plan
SELECT version, document, applied_at, NULL::timestamptz AS until_at
FROM plan
ORDER BY version DESC
LIMIT 1

-- The plans that were in force at some time of a window, with the span of each.
-- name: plans_of_window
SELECT version, document, applied_at, until_at
FROM (
    SELECT version, document, applied_at, lead(applied_at) OVER (ORDER BY version) AS until_at
    FROM plan
) AS spans
WHERE applied_at < %(until_at)s AND (until_at IS NULL OR until_at > %(from_at)s)
ORDER BY version

-- A plan takes effect.
-- name: insert_plan
INSERT INTO plan (version, document, applied_at, applied_by)
VALUES (%(version)s, %(document)s, %(applied_at)s, %(applied_by)s)

-- A target is planned for the first time, or again.
-- name: insert_target
INSERT INTO target (
    id, name, provider, model, base_url, dialect, workload, every_us, overlap, credential,
    usd_per_m_input, usd_per_m_output, region, first_version, last_version
)
VALUES (
    %(id)s, %(name)s, %(provider)s, %(model)s, %(base_url)s, %(dialect)s, %(workload)s, %(every_us)s, %(overlap)s,
    %(credential)s, %(usd_per_m_input)s, %(usd_per_m_output)s, %(region)s, %(version)s, %(version)s
)
ON CONFLICT DO NOTHING

-- A target is described as the newest plan describes it. What makes its id cannot have changed.
-- name: describe_target
UPDATE target
SET name = %(name)s,
    workload = %(workload)s,
    every_us = %(every_us)s,
    overlap = %(overlap)s,
    credential = %(credential)s,
    usd_per_m_input = %(usd_per_m_input)s,
    usd_per_m_output = %(usd_per_m_output)s,
    region = %(region)s,
    last_version = %(version)s
WHERE id = %(id)s

-- Every target ever planned.
-- name: targets
SELECT id, name, provider, model, usd_per_m_output, last_version
FROM target
ORDER BY name, last_version DESC

-- The newest samples of a selection, with the name of the vantage each came from.
-- name: samples
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
ORDER BY round_at DESC, target_id, vantage_id, epoch, seq DESC, idx DESC
LIMIT %(limit)s

-- The regions that have any sample of a selection.
-- name: regions_with_samples
SELECT DISTINCT region AS name
FROM sample
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
ORDER BY region

-- One metric as a series per target and region: the median of each round, and whether the round was cut off by a
-- timeout, in which case the value is the limit that was hit.
-- name: series
SELECT
    target_id,
    region,
    array_agg(round_at ORDER BY round_at) AS rounds,
    array_agg(value ORDER BY round_at) AS medians,
    array_agg(censored ORDER BY round_at) AS censored
FROM (
    SELECT
        target_id,
        region,
        round_at,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY value) AS value,
        bool_or(censored) AS censored
    FROM (
        SELECT
            target_id,
            region,
            round_at,
            coalesce({value}, {ceiling})::double precision AS value,
            {value} IS NULL AS censored
        FROM sample
        WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
            AND target_id = ANY(%(target_ids)s::bigint[])
            AND region = ANY(%(regions)s::text[])
    ) AS probes
    WHERE value IS NOT NULL
    GROUP BY target_id, region, round_at
) AS medians_of_rounds
GROUP BY target_id, region

-- What a leaderboard needs of each target and region: the values themselves, because percentiles are never averaged.
-- name: standings
SELECT
    target_id,
    region,
    array_agg(ttft_us) FILTER (
        WHERE ttft_us IS NOT NULL AND outcome IN ('ok', 'timed_out', 'stalled', 'truncated')
    ) AS ttft_us,
    array_agg(coalesce(timeout_us, 0)) FILTER (
        WHERE ttft_us IS NULL AND outcome IN ('timed_out', 'stalled')
    ) AS censored_us,
    array_agg(tokens_per_second) FILTER (
        WHERE tokens_per_second IS NOT NULL AND outcome = 'ok'
    ) AS tokens_per_second,
    count(*) FILTER (
        WHERE outcome NOT IN ('ok', 'throttled') AND NOT starts_with(outcome, 'skipped_')
    ) AS failed,
    max(round_at) AS newest_at
FROM sample
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
GROUP BY target_id, region

-- Which rounds each vantage recorded of each target, and how they ended.
-- name: recorded
SELECT
    rounds.vantage_id,
    rounds.target_id,
    rounds.recorded,
    rounds.oldest_at,
    rounds.newest_at,
    outcomes.counts AS outcomes
FROM (
    SELECT
        vantage_id,
        target_id,
        count(DISTINCT round_at) AS recorded,
        min(round_at) AS oldest_at,
        max(round_at) AS newest_at
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
    GROUP BY vantage_id, target_id
) AS rounds
JOIN (
    SELECT vantage_id, target_id, jsonb_object_agg(outcome, probes) AS counts
    FROM (
        SELECT vantage_id, target_id, outcome, count(*) AS probes
        FROM sample
        WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
            AND target_id = ANY(%(target_ids)s::bigint[])
        GROUP BY vantage_id, target_id, outcome
    ) AS by_outcome
    GROUP BY vantage_id, target_id
) AS outcomes USING (vantage_id, target_id)
