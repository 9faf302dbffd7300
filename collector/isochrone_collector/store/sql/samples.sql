-- Single samples: the newest, one of them, all of them page by page, and those of newly stored batches.

-- The newest samples of a selection, each with the name of its vantage.
-- name: samples
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
    AND {condition}
ORDER BY round_at DESC, target_id, vantage_id, epoch, seq DESC, idx DESC
LIMIT %(limit)s

-- One sample, by its key.
-- name: sample_at
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE round_at = %(round_at)s
    AND target_id = %(target_id)s::bigint
    AND vantage_id = %(vantage_id)s::bigint
    AND sample.epoch = %(epoch)s::bigint
    AND seq = %(seq)s::bigint
    AND idx = %(idx)s::integer

-- The samples of a selection that come after a given one, oldest round first.
-- name: samples_after
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
    AND {condition}
    AND (round_at, target_id, vantage_id, sample.epoch, seq, idx) > (
        %(after_round_at)s, %(after_target_id)s::bigint, %(after_vantage_id)s::bigint, %(after_epoch)s::bigint,
        %(after_seq)s::bigint, %(after_idx)s::integer
    )
ORDER BY round_at, target_id, vantage_id, epoch, seq, idx
LIMIT %(limit)s

-- The samples of some batches, found by their rounds, because no index has the batch of a sample.
-- name: samples_of_batches
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
JOIN unnest(
    %(vantage_ids)s::bigint[], %(epochs)s::bigint[], %(seqs)s::bigint[],
    %(oldest_at)b::timestamptz[], %(newest_at)b::timestamptz[]
) AS batch (vantage_id, epoch, seq, oldest_round_at, newest_round_at)
    ON batch.vantage_id = sample.vantage_id
    AND batch.epoch = sample.epoch
    AND batch.seq = sample.seq
    AND sample.round_at >= batch.oldest_round_at
    AND sample.round_at <= batch.newest_round_at
WHERE sample.round_at >= %(from_at)s AND sample.round_at <= %(until_at)s
    AND sample.target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
    AND {condition}
ORDER BY sample.received_at, sample.round_at, sample.target_id, sample.vantage_id, sample.epoch, sample.seq, sample.idx

-- The lowest remaining amounts of the rate limits per target, vantage and bucket, and the numbers of readings.
-- name: rate_limit_history
SELECT
    target_id,
    vantage.name AS vantage,
    sample.region,
    date_bin(%(bucket)s::interval, round_at, 'epoch') AS at,
    min(ratelimit_remaining_requests) AS requests,
    count(ratelimit_remaining_requests) AS requests_n,
    min(ratelimit_remaining_tokens) AS tokens,
    count(ratelimit_remaining_tokens) AS tokens_n
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
    AND (ratelimit_remaining_requests IS NOT NULL OR ratelimit_remaining_tokens IS NOT NULL)
GROUP BY 1, 2, 3, 4
ORDER BY 1, 3, 2, 4
LIMIT %(limit)s

-- The newest readings of the rate limits per target and vantage, oldest first.
-- name: rate_limit_readings
SELECT
    target_id,
    vantage.name AS vantage,
    newest.region,
    dispatched_at AS at,
    ratelimit_remaining_requests AS remaining_requests,
    ratelimit_limit_requests AS limit_requests,
    ratelimit_reset_requests_us AS reset_requests_us,
    ratelimit_remaining_tokens AS remaining_tokens,
    ratelimit_limit_tokens AS limit_tokens,
    ratelimit_reset_tokens_us AS reset_tokens_us
FROM (
    SELECT
        sample.*,
        row_number() OVER (PARTITION BY target_id, vantage_id, region ORDER BY round_at DESC, dispatched_at DESC) AS nth
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
        AND (ratelimit_remaining_requests IS NOT NULL OR ratelimit_remaining_tokens IS NOT NULL)
) AS newest
JOIN vantage ON vantage.id = newest.vantage_id
WHERE nth <= %(readings)s
ORDER BY target_id, newest.region, vantage.name, dispatched_at
