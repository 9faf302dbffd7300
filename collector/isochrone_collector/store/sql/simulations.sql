-- Recorded rounds for simulations.

-- Every probe that was sent and has a valid duration, or failed, as columns per target. A limit of one more than allowed shows that there are too many.
-- name: probes_asked
SELECT
    target_id,
    array_agg(vantage_id) AS vantage_id,
    array_agg(round_at) AS round_at,
    array_agg(dispatched_at) AS dispatched_at,
    array_agg(throttled) AS throttled,
    array_agg(ttft_us) AS ttft_us,
    array_agg(limit_us) AS limit_us,
    array_agg(cost_usd) AS cost_usd
FROM (
    SELECT
        target_id,
        vantage_id,
        round_at,
        dispatched_at,
        (outcome = 'throttled')::integer AS throttled,
        coalesce(
            CASE WHEN outcome IN ('ok', 'timed_out', 'stalled', 'truncated') THEN ttft_us END, 'NaN'::double precision
        ) AS ttft_us,
        coalesce(CASE WHEN outcome IN ('timed_out', 'stalled', 'connect_failed') THEN timeout_us END, 0)::double precision AS limit_us,
        coalesce(cost_usd, 'NaN') AS cost_usd
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
        AND NOT starts_with(outcome, 'skipped_')
        AND (outcome <> 'ok' OR {valid})
    LIMIT %(limit)s
) AS asked
GROUP BY target_id

-- The region of each vantage.
-- name: vantage_regions
SELECT id, region
FROM vantage

-- The interval of each target.
-- name: target_intervals
SELECT id, every_us
FROM target
WHERE id = ANY(%(target_ids)s::bigint[])
