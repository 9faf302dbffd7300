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

-- Delete incidents that ended long ago, some at a time; open ones stay.
-- name: forget_incidents
DELETE FROM incident
WHERE id = ANY(ARRAY(SELECT id FROM incident WHERE recovered_at < %(before_at)s ORDER BY recovered_at LIMIT 1000))

-- Old alerts that nothing needs any more, some of them. These stay: what is not delivered, or of a problem that a
-- receiver has not got the end of; what is about an open incident; and the last alert about each subject, which shows
-- whether an absence or a breach lasts.
-- name: alerts_to_forget
SELECT id
FROM alert
WHERE raised_at < %(before_at)s
    AND id NOT IN (SELECT alert_id FROM alert_delivery WHERE next_attempt_at IS NOT NULL OR is_open)
    AND id NOT IN (SELECT DISTINCT ON (subject) id FROM alert ORDER BY subject, raised_at DESC, id)
    AND coalesce(details ->> 'incident', '') NOT IN (
        SELECT 'incident_' || lpad(to_hex(id), 16, '0') FROM incident WHERE recovered_at IS NULL
    )
ORDER BY raised_at
LIMIT 1000

-- Delete the deliveries of some alerts.
-- name: forget_deliveries
DELETE FROM alert_delivery
WHERE alert_id = ANY(%(ids)s::bigint[])

-- Delete some alerts.
-- name: forget_alerts
DELETE FROM alert
WHERE id = ANY(%(ids)s::bigint[])

-- Delete silences and acknowledgements that ended long ago.
-- name: forget_silences
DELETE FROM silence
WHERE until_at < %(before_at)s OR ended_at < %(before_at)s

-- The oldest bucket of a resolution.
-- name: oldest_bucket
SELECT min(bucket_start) AS at
FROM outcome_summary
WHERE resolution = %(resolution)s

-- Delete the histograms of one bucket.
-- name: forget_summaries
DELETE FROM summary
WHERE resolution = %(resolution)s AND metric = ANY(%(metrics)s::text[]) AND bucket_start = %(bucket_at)s

-- Delete the outcomes of one bucket; last, because `oldest_bucket` finds the bucket by them.
-- name: forget_outcomes
DELETE FROM outcome_summary
WHERE resolution = %(resolution)s AND bucket_start = %(bucket_at)s
