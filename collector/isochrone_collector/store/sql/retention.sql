-- What is kept for a time only.

-- When the oldest batch of the ledger was received.
-- name: oldest_batch
SELECT min(received_at) AS at
FROM ingest_batch

-- The oldest batches are forgotten; ones that came meanwhile are newer.
-- name: forget_batches
DELETE FROM ingest_batch
WHERE received_at < %(until_at)s

-- When the oldest late sample was received.
-- name: oldest_late
SELECT min(received_at) AS at
FROM sample_late

-- The oldest late samples are forgotten.
-- name: forget_late
DELETE FROM sample_late
WHERE received_at < %(until_at)s

-- The oldest bucket of a resolution.
-- name: oldest_bucket
SELECT min(bucket_start) AS at
FROM outcome_summary
WHERE resolution = %(resolution)s

-- One bucket is forgotten.
-- name: forget_summaries
DELETE FROM summary
WHERE resolution = %(resolution)s AND metric = ANY(%(metrics)s::text[]) AND bucket_start = %(bucket_start)s

-- And how its probes ended; last, because it says that the bucket is there.
-- name: forget_outcomes
DELETE FROM outcome_summary
WHERE resolution = %(resolution)s AND bucket_start = %(bucket_start)s
