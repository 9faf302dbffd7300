-- Incidents of targets, and the rounds from which they are found.

-- The rounds of some targets since an instant, oldest first: of each vantage the best result.
-- Rounds without a request are left out, except those held back because the provider had asked to wait, and those that
-- waited for a failed probe (256: `Quality.BLOCKED`), which count as held back too.
-- name: round_results
SELECT
    target_id,
    region,
    array_agg(vantage_id ORDER BY round_at) AS vantage_id,
    array_agg(round_at ORDER BY round_at) AS round_at,
    array_agg(kind ORDER BY round_at) AS kind
FROM (
    SELECT
        target_id,
        region,
        vantage_id,
        round_at,
        min(
            CASE
                WHEN quality & 256 <> 0 OR outcome = 'skipped_throttled' THEN 3
                WHEN outcome = 'ok' THEN 0
                WHEN outcome = 'throttled' THEN 2
                ELSE 1
            END
        ) AS kind
    FROM sample
    WHERE target_id = ANY(%(target_ids)s::bigint[])
        AND round_at >= %(from_at)s
        AND (outcome = 'skipped_throttled' OR NOT starts_with(outcome, 'skipped_'))
    GROUP BY target_id, region, vantage_id, round_at
) AS rounds
GROUP BY target_id, region

-- The targets with an answered probe in a summary.
-- name: targets_answered_once
SELECT target_id AS id
FROM outcome_summary
WHERE target_id = ANY(%(target_ids)s::bigint[]) AND outcomes ->> 'ok' IS NOT NULL
GROUP BY target_id

-- The targets with an answered probe since an instant.
-- name: targets_answered_since
SELECT target_id AS id
FROM sample
WHERE target_id = ANY(%(target_ids)s::bigint[]) AND round_at >= %(from_at)s AND outcome = 'ok'
GROUP BY target_id

-- Record an incident that is not in the table: a new one, or one that a restored database has lost. There is none if
-- another of this kind and target is open.
-- name: add_incident
INSERT INTO incident (
    id, kind, target_id, subject, failing, regions, scope, never_worked, first_failed_at, last_failed_at, opened_at,
    escalated_at, recovered_at, classes, samples, example
)
VALUES (
    %(id)s, %(kind)s, %(target_id)s, %(subject)s, %(failing)s, %(regions)s, %(scope)s, %(never_worked)s,
    %(first_failed_at)s, %(last_failed_at)s, %(opened_at)s, %(escalated_at)s, %(recovered_at)s, %(classes)s,
    %(samples)s, %(example)s
)
ON CONFLICT DO NOTHING

-- Record the state of an open incident.
-- name: update_incident
UPDATE incident
SET failing = %(failing)s,
    regions = %(regions)s,
    scope = %(scope)s,
    last_failed_at = %(last_failed_at)s,
    escalated_at = %(escalated_at)s,
    recovered_at = %(recovered_at)s,
    classes = %(classes)s,
    samples = %(samples)s,
    example = %(example)s
WHERE id = %(id)s AND recovered_at IS NULL

-- The incidents that are open, or ended since an instant, oldest first.
-- name: incidents_since
SELECT id, kind, target_id, subject, failing, regions, scope, never_worked, first_failed_at, last_failed_at, opened_at,
    escalated_at, recovered_at, classes, samples, example
FROM incident
WHERE recovered_at IS NULL OR recovered_at >= %(since_at)s
ORDER BY opened_at, id

-- The open incidents, oldest first.
-- name: open_incidents
SELECT id, kind, target_id, failing
FROM incident
WHERE recovered_at IS NULL
ORDER BY opened_at, id

-- The incidents of a window: those that had opened before its end and had not recovered before its start.
-- name: incidents_of_window
SELECT id, kind, target_id, subject, failing, regions, scope, never_worked, first_failed_at, last_failed_at, opened_at,
    escalated_at, recovered_at, classes, samples, example
FROM incident
WHERE opened_at < %(until_at)s AND (recovered_at IS NULL OR recovered_at >= %(from_at)s)
    AND (%(past)s OR recovered_at IS NULL)
ORDER BY opened_at DESC, id
LIMIT %(limit)s

-- One incident.
-- name: incident_by_id
SELECT id, kind, target_id, subject, failing, regions, scope, never_worked, first_failed_at, last_failed_at, opened_at,
    escalated_at, recovered_at, classes, samples, example
FROM incident
WHERE id = %(id)s

-- The numbers of the probes of a target that ended in some outcomes, by outcome and HTTP status.
-- name: failure_classes
SELECT outcome, http_status, count(*) AS n
FROM sample
WHERE target_id = %(target_id)s
    AND round_at >= %(from_at)s AND round_at <= %(until_at)s
    AND region = ANY(%(regions)s::text[])
    AND outcome = ANY(%(outcomes)s::text[])
GROUP BY outcome, http_status

-- The newest of these probes.
-- name: newest_failures
SELECT vantage.name AS vantage, sample.region, round_at, outcome, http_status, coalesce(error, '') AS error
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE target_id = %(target_id)s
    AND round_at >= %(from_at)s AND round_at <= %(until_at)s
    AND sample.region = ANY(%(regions)s::text[])
    AND outcome = ANY(%(outcomes)s::text[])
ORDER BY round_at DESC, vantage_id, sample.epoch, seq, idx
LIMIT %(limit)s
