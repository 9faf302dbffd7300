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

-- Claim batches in the ledger; those that were claimed before do not come back. Instants are sent as they are kept (b).
-- name: claim_batches
INSERT INTO ingest_batch (vantage_id, epoch, seq, samples, stored, late, rejections, received_at)
SELECT *
FROM unnest(
    %(vantage_id)s::bigint[], %(epoch)s::bigint[], %(seq)s::bigint[], %(samples)s::integer[], %(stored)s::integer[],
    %(late)s::integer[], %(rejections)s::jsonb[], %(received_at)b::timestamptz[]
)
ON CONFLICT DO NOTHING
RETURNING vantage_id, epoch, seq

-- What the ledger says of batches that were claimed before.
-- name: claimed_batches
SELECT vantage_id, epoch, seq, samples, stored, rejections
FROM ingest_batch
JOIN unnest(%(vantage_id)s::bigint[], %(epoch)s::bigint[], %(seq)s::bigint[]) AS asked (vantage_id, epoch, seq)
    USING (vantage_id, epoch, seq)

-- The hot path: packed rows.
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

-- All vantages with the vitals of their newest push, and what the ledger has of the spool that made it.
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
    coalesce(ledger.stored, 0) AS ledgered,
    rounds_missed
FROM vantage
LEFT JOIN LATERAL (
    SELECT sum(stored)::bigint AS stored
    FROM ingest_batch
    WHERE vantage_id = vantage.id AND epoch = vantage.epoch
) AS ledger ON true
ORDER BY region, name

-- What every agent last said it had spent.
-- name: spenders
SELECT name, region, spend
FROM vantage
ORDER BY region, name

-- How agents are doing, as of their newest pushes; `samples_at` is when samples of theirs were stored, if any were.
-- name: note_vitals
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
    spend = told.spend
FROM unnest(
    %(id)s::bigint[], %(seen_at)b::timestamptz[], %(epoch)s::bigint[], %(samples_at)b::timestamptz[],
    %(agent_version)s::text[], %(plan_version)s::bigint[], %(spool_depth)s::bigint[],
    %(spool_oldest_at)b::timestamptz[], %(dropped)s::jsonb[], %(next_heartbeat_at)b::timestamptz[],
    %(finished)s::bigint[], %(stored)s::bigint[], %(quarantined)s::bigint[], %(rounds_missed)s::bigint[],
    %(clock_offset_us)s::bigint[], %(clock_uncertainty_us)s::bigint[], %(loop_lag_us)s::bigint[],
    %(refused_plan_version)s::bigint[], %(refused_plan_reason)s::text[], %(spend)s::jsonb[]
) AS told (
    id, seen_at, epoch, samples_at, agent_version, plan_version, spool_depth, spool_oldest_at, dropped,
    next_heartbeat_at, finished, stored, quarantined, rounds_missed, clock_offset_us, clock_uncertainty_us, loop_lag_us,
    refused_plan_version, refused_plan_reason, spend
)
WHERE vantage.id = told.id AND vantage.last_seen_at <= told.seen_at

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
INSERT INTO plan (version, document, applied_at, applied_by, restores)
VALUES (%(version)s, %(document)s, %(applied_at)s, %(applied_by)s, %(restores)s)

-- What an earlier plan said, word for word.
-- name: plan_document
SELECT document
FROM plan
WHERE version = %(version)s

-- The newest plans, the newest first.
-- name: plan_history
SELECT version, document, applied_at, applied_by, restores
FROM plan
ORDER BY version DESC
LIMIT %(limit)s

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

-- Every credential there ever was.
-- name: credentials
SELECT id, name, role, region, secret_hash, created_at, expires_at, revoked_at, last_used_at
FROM credential
ORDER BY created_at, id

-- One credential, perhaps another collector's newest.
-- name: credential_by_id
SELECT id, name, role, region, secret_hash, created_at, expires_at, revoked_at, last_used_at
FROM credential
WHERE id = %(id)s

-- The invitations that may still be used, or have expired unused.
-- name: invitations
SELECT id, name, role, region, secret_hash, overlap_us, created_at, expires_at, used_at, revoked_at
FROM invitation
WHERE used_at IS NULL AND revoked_at IS NULL
ORDER BY created_at, id

-- One invitation, whatever has become of it.
-- name: invitation_by_id
SELECT id, name, role, region, secret_hash, overlap_us, created_at, expires_at, used_at, revoked_at
FROM invitation
WHERE id = %(id)s

-- Somebody is invited.
-- name: insert_invitation
INSERT INTO invitation (id, name, role, region, secret_hash, overlap_us, created_at, expires_at)
VALUES (
    %(id)s, %(name)s, %(role)s, %(region)s, %(secret_hash)s, %(overlap_us)s, %(created_at)s, %(expires_at)s
)

-- An invitation is used, once: no row comes back the second time.
-- name: use_invitation
UPDATE invitation
SET used_at = %(used_at)s
WHERE id = %(id)s AND used_at IS NULL AND revoked_at IS NULL AND expires_at > %(used_at)s
RETURNING id

-- A credential begins.
-- name: insert_credential
INSERT INTO credential (id, name, role, region, secret_hash, created_at)
VALUES (%(id)s, %(name)s, %(role)s, %(region)s, %(secret_hash)s, %(created_at)s)

-- Earlier credentials of a name end when the overlap does, unless they end sooner anyway.
-- name: end_earlier_credentials
UPDATE credential
SET expires_at = least(expires_at, %(expires_at)s)
WHERE name = %(name)s AND id <> %(id)s AND revoked_at IS NULL

-- Nobody of that name comes in any more.
-- name: revoke_credentials
UPDATE credential
SET revoked_at = %(revoked_at)s
WHERE name = %(name)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %(revoked_at)s)
RETURNING id

-- Nor joins with a token made before.
-- name: revoke_invitations
UPDATE invitation
SET revoked_at = %(revoked_at)s
WHERE name = %(name)s AND used_at IS NULL AND revoked_at IS NULL AND expires_at > %(revoked_at)s
RETURNING id

-- One credential ends.
-- name: revoke_credential
UPDATE credential
SET revoked_at = %(revoked_at)s
WHERE id = %(id)s AND revoked_at IS NULL

-- When credentials were used last, as of now and then.
-- name: note_credential_use
UPDATE credential
SET last_used_at = %(used_at)s
WHERE id = ANY(%(ids)s::bigint[]) AND (last_used_at IS NULL OR last_used_at < %(used_at)s)

-- What decides whether an acknowledged batch survives a power cut.
-- name: durability_settings
SELECT name, setting
FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')

-- Whether rows of a day without a partition would be swallowed.
-- name: has_default_partition
SELECT count(*)
FROM pg_partitioned_table
WHERE partrelid = 'sample'::regclass AND partdefid <> 0

-- The database's wall clock, in microseconds since the Unix epoch.
-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- The plan in force, 0 before the first.
-- name: newest_plan_version
SELECT coalesce(max(version), 0)
FROM plan
