-- Deletion of data after its retention period.

-- The instant at which the oldest batch of the ledger was received.
-- name: oldest_batch
SELECT min(received_at) AS at
FROM ingest_batch

-- Delete the oldest batches; batches that are received meanwhile are newer.
-- name: forget_batches
DELETE FROM ingest_batch
WHERE received_at < %(until_at)s

-- The instant at which the oldest late sample was received.
-- name: oldest_late
SELECT min(received_at) AS at
FROM sample_late

-- Delete the oldest late samples.
-- name: forget_late
DELETE FROM sample_late
WHERE received_at < %(until_at)s

-- The oldest bucket of a resolution.
-- name: oldest_bucket
SELECT min(bucket_start) AS at
FROM outcome_summary
WHERE resolution = %(resolution)s

-- Delete the histograms of one bucket.
-- name: forget_summaries
DELETE FROM summary
WHERE resolution = %(resolution)s AND metric = ANY(%(metrics)s::text[]) AND bucket_start = %(bucket_start)s

-- Delete the outcomes of one bucket; last, because `oldest_bucket` finds the bucket by them.
-- name: forget_outcomes
DELETE FROM outcome_summary
WHERE resolution = %(resolution)s AND bucket_start = %(bucket_start)s
