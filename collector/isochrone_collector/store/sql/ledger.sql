-- What the ledger does not say of batches that a collector of the version before stored: their rounds, and their part of
-- the accounts.

-- Batches received since an instant without their rounds, of those that have samples with the others.
-- name: roundless_batches
SELECT vantage_id, epoch, seq
FROM ingest_batch
WHERE received_at >= %(received_at)s
    AND oldest_round_at IS NULL
    AND stored > late

-- The vantages whose current epoch has batches without rounds that were received since an instant.
-- name: roundless_vantages
SELECT DISTINCT vantage.id
FROM vantage
JOIN ingest_batch ON ingest_batch.vantage_id = vantage.id AND ingest_batch.epoch = vantage.epoch
WHERE ingest_batch.received_at >= %(received_at)s
    AND ingest_batch.oldest_round_at IS NULL
    AND ingest_batch.stored > 0

-- The hours of the samples of some batches, before an instant.
-- name: hours_of_batches
SELECT DISTINCT
    date_bin('1 hour', round_at, timestamptz 'epoch') AS from_at,
    date_bin('1 hour', round_at, timestamptz 'epoch') AS until_at
FROM sample
JOIN unnest(%(vantage_id)s::bigint[], %(epoch)s::bigint[], %(seq)s::bigint[]) AS asked (vantage_id, epoch, seq)
    USING (vantage_id, epoch, seq)
WHERE round_at < %(before_at)s

-- The regions of the samples of some batches in a span of rounds, and the oldest of these rounds.
-- name: deliveries_of_batches
SELECT region, min(round_at) AS oldest_round_at
FROM sample
JOIN unnest(%(vantage_id)s::bigint[], %(epoch)s::bigint[], %(seq)s::bigint[]) AS asked (vantage_id, epoch, seq)
    USING (vantage_id, epoch, seq)
WHERE round_at >= %(from_at)s AND round_at < %(before_at)s
GROUP BY region

-- Nobody adds to an account while it is counted.
-- name: hold_account
SELECT id, epoch
FROM vantage
WHERE id = %(id)s AND epoch IS NOT NULL
FOR UPDATE

-- What the ledger has of a vantage's epoch, and its first batch there.
-- name: count_account
SELECT coalesce(sum(stored), 0)::bigint AS ledgered, min(seq) AS first_seq
FROM ingest_batch
WHERE vantage_id = %(id)s AND epoch = %(epoch)s

-- An account counted anew; where the epoch's first batch is forgotten already, the ledger may know less than was added.
-- name: set_account
UPDATE vantage
SET ledgered = CASE
        WHEN %(is_whole)s THEN %(ledgered)s::bigint
        ELSE greatest(ledgered, %(ledgered)s::bigint)
    END
WHERE id = %(id)s
