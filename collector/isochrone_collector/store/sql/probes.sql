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

-- The share of the probes of each vantage that cannot be compared, of those that succeeded.
-- name: left_out
SELECT vantage_id, (avg(CASE WHEN traits & 2 = 0 THEN 1.0 ELSE 0.0 END))::double precision AS share
FROM sample
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND outcome = 'ok'
GROUP BY vantage_id

-- The transactions so far: all before `until` have ended, except the pending ones, and later ones will have a higher
-- number. The instant is that of the database's clock.
-- name: transactions
SELECT
    pg_snapshot_xmax(snapshot)::text::bigint AS until,
    ARRAY(SELECT pending::text::bigint FROM pg_snapshot_xip(snapshot) AS pending) AS pending,
    clock_timestamp() AS at,
    (SELECT count(*) > 0 FROM pg_extension WHERE extname = 'citus') AS is_cluster
FROM pg_current_snapshot() AS snapshot

-- The newest transaction that stored samples and has ended, 0 without any; of the batches received before an instant, by
-- the collectors' clocks.
-- name: newest_transaction
SELECT coalesce(max(transaction_id), 0) AS transaction_id
FROM ingest_batch
WHERE transaction_id < %(until)s
    AND NOT transaction_id = ANY(%(pending)s::bigint[])
    AND received_at < %(received_before_at)s
    AND oldest_round_at IS NOT NULL

-- The transaction of the last of the next batches, in the order of transactions; none without any.
-- name: last_transaction_of_next
SELECT max(transaction_id) AS transaction_id
FROM (
    SELECT transaction_id
    FROM ingest_batch
    WHERE transaction_id > %(newest)s AND transaction_id < %(until)s
    ORDER BY transaction_id
    LIMIT %(most)s
) AS found

-- The batches with stored samples of a transaction and of those after it, or that were pending then, if they have ended:
-- the epoch, the number, the oldest and the newest round, the stored samples and the transaction of each, as bytes,
-- concatenated per vantage.
-- name: batches_since
SELECT
    vantage_id,
    vantage.region AS region,
    max(transaction_id) AS newest,
    string_agg(
        int8send(ingest_batch.epoch)
            || int8send(seq)
            || timestamptz_send(oldest_round_at)
            || timestamptz_send(newest_round_at)
            || int8send(ingest_batch.stored)
            || int8send(transaction_id),
        ''
    ) AS batches
FROM ingest_batch
JOIN vantage ON vantage.id = ingest_batch.vantage_id
WHERE (transaction_id >= %(newest)s OR transaction_id = ANY(%(pending_before)s::bigint[]))
    AND transaction_id < %(until)s
    AND NOT transaction_id = ANY(%(pending)s::bigint[])
    AND oldest_round_at IS NOT NULL
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
