-- Statements of ingest.

-- Claim batches in the ledger; no row is returned for one that was claimed before. Instants are sent in binary (b).
-- name: claim_batches
INSERT INTO ingest_batch (
    vantage_id, epoch, seq, samples, stored, late, rejections, received_at, oldest_round_at, newest_round_at,
    content_hash, transaction_id
)
SELECT *, pg_current_xact_id()::text::bigint
FROM unnest(
    %(vantage_id)s::bigint[], %(epoch)s::bigint[], %(seq)s::bigint[], %(samples)s::integer[], %(stored)s::integer[],
    %(late)s::integer[], %(rejections)s::jsonb[], %(received_at)b::timestamptz[],
    %(oldest_round_at)b::timestamptz[], %(newest_round_at)b::timestamptz[],
    %(content_hash)s::bytea[]
)
ON CONFLICT DO NOTHING
RETURNING vantage_id, epoch, seq

-- The ledger entries of batches that were claimed before.
-- name: claimed_batches
SELECT vantage_id, epoch, seq, samples, stored, rejections, content_hash
FROM ingest_batch
JOIN unnest(%(vantage_id)s::bigint[], %(epoch)s::bigint[], %(seq)s::bigint[]) AS asked (vantage_id, epoch, seq)
    USING (vantage_id, epoch, seq)

-- A record in the write-ahead log, so that the commit of this transaction waits for the log, and for what is before it.
-- name: write_to_log
SELECT pg_logical_emit_message(true, 'isochrone', '')

-- The number of batches of a range in the ledger.
-- name: count_batches
SELECT count(*) AS batches
FROM ingest_batch
WHERE vantage_id = %(vantage_id)s AND epoch = %(epoch)s AND seq BETWEEN %(first_seq)s AND %(last_seq)s

-- The batches of a range in the ledger.
-- name: batches_of_range
SELECT seq
FROM ingest_batch
WHERE vantage_id = %(vantage_id)s AND epoch = %(epoch)s AND seq BETWEEN %(first_seq)s AND %(last_seq)s
ORDER BY seq

-- The hot path: packed rows.
-- name: copy_samples
COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)

-- The stored samples of some rounds of a vantage.
-- name: stored_rounds
SELECT target_id, round_at, epoch, dispatched_at
FROM sample
JOIN unnest(%(target_id)s::bigint[], %(round_at)b::timestamptz[]) AS asked (target_id, round_at)
    USING (target_id, round_at)
WHERE vantage_id = %(vantage_id)s AND round_at BETWEEN %(from_at)s AND %(until_at)s
