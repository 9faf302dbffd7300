-- Probes for queries. SQL selects them; Python estimates.

-- Columns of every probe, as the bytes of a few numbers each, concatenated per target: half the size of arrays, and
-- faster to aggregate. Values and limits are made of them in Python, because percentiles are never averaged. A region is
-- its place in the list.
-- name: probe_columns
SELECT target_id, string_agg({record}, ''::bytea) AS probes
FROM sample
JOIN (
    SELECT name AS region, nth - 1 AS place
    FROM unnest(%(regions)s::text[]) WITH ORDINALITY AS listed (name, nth)
) AS places USING (region)
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
GROUP BY target_id

-- The rounds that each vantage recorded of each target, and their outcomes.
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

-- The batches with stored samples that were received since an instant, by the collectors' clocks: the epoch, the number,
-- and the oldest and the newest round of each, as bytes, concatenated per vantage.
-- name: batches_since
SELECT
    vantage_id,
    vantage.region AS region,
    string_agg(
        int8send(ingest_batch.epoch)
            || int8send(seq)
            || timestamptz_send(oldest_round_at)
            || timestamptz_send(newest_round_at),
        ''
    ) AS batches
FROM ingest_batch
JOIN vantage ON vantage.id = ingest_batch.vantage_id
WHERE received_at >= %(since_at)s AND oldest_round_at IS NOT NULL
GROUP BY vantage_id, vantage.region

-- Probes as records, the bytes of a few numbers each, concatenated per target: see `analysis.probe_records`.
-- name: probe_records
SELECT string_agg({record}, ''::bytea) AS records
FROM sample
WHERE target_id = ANY(%(target_ids)s::bigint[])
    AND round_at >= %(from_at)s
    AND round_at <= %(until_at)s
    AND {chosen}
GROUP BY target_id

-- The number of samples, up to a limit.
-- name: samples_up_to
SELECT count(*) AS many
FROM (
    SELECT 1 AS one
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
    LIMIT %(limit)s
) AS found
