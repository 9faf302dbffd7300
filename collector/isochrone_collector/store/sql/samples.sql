-- Single samples: the newest, all of them page by page, and those of newly stored batches.

-- The newest samples of a selection, each with the name of its vantage.
-- name: samples
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
ORDER BY round_at DESC, target_id, vantage_id, epoch, seq DESC, idx DESC
LIMIT %(limit)s

-- The samples of a selection that come after a given one, oldest round first.
-- name: samples_after
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
    AND (round_at, target_id, vantage_id, sample.epoch, seq, idx) > (
        %(after_round_at)s, %(after_target_id)s::bigint, %(after_vantage_id)s::bigint, %(after_epoch)s::bigint,
        %(after_seq)s::bigint, %(after_idx)s::integer
    )
ORDER BY round_at, target_id, vantage_id, epoch, seq, idx
LIMIT %(limit)s

-- The batches that were received in a span of time by the collectors' clocks, and the rounds of their samples.
-- name: batches_received
SELECT
    vantage_id,
    ingest_batch.epoch,
    seq,
    ingest_batch.stored,
    received_at,
    oldest_round_at,
    newest_round_at
FROM ingest_batch
JOIN vantage ON vantage.id = ingest_batch.vantage_id
WHERE received_at >= %(from_at)s AND received_at < %(until_at)s
    AND ingest_batch.stored > 0
    AND (%(regions)s::text[] IS NULL OR vantage.region = ANY(%(regions)s))
ORDER BY received_at, vantage_id, ingest_batch.epoch, seq

-- The samples of some batches, found by their rounds, because no index has the batch of a sample.
-- name: samples_of_batches
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
JOIN unnest(
    %(vantage_ids)s::bigint[], %(epochs)s::bigint[], %(seqs)s::bigint[],
    %(oldest)b::timestamptz[], %(newest)b::timestamptz[]
) AS batch (vantage_id, epoch, seq, oldest_round_at, newest_round_at)
    ON batch.vantage_id = sample.vantage_id
    AND batch.epoch = sample.epoch
    AND batch.seq = sample.seq
    AND sample.round_at >= batch.oldest_round_at
    AND sample.round_at <= batch.newest_round_at
WHERE sample.round_at >= %(from_at)s AND sample.round_at <= %(until_at)s
    AND sample.target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
ORDER BY sample.received_at, sample.round_at, sample.target_id, sample.vantage_id, sample.epoch, sample.seq, sample.idx
