-- Lasting changes: the round medians in which they are searched, and the changes found.

-- The round medians in which changes are searched, by target and region. A probe that was cut off by a timeout counts
-- with its limit; rounds in which half of the probes or more were cut off are marked. A round without a value of a
-- metric is NaN. The two lowest of the traits are whether the values are valid and can be compared. `analysis.probe_records.round_medians`
-- computes the same of probes in memory.
-- name: round_medians
SELECT
    target_id,
    region,
    array_agg(round_at ORDER BY round_at) AS rounds,
    array_agg(coalesce(ttft_us, 'NaN') ORDER BY round_at) AS ttft_us,
    array_agg(ttft_limited::integer ORDER BY round_at) AS ttft_limited,
    array_agg(coalesce(speed, 'NaN') ORDER BY round_at) AS tokens_per_second
FROM (
    SELECT
        target_id,
        region,
        round_at,
        percentile_cont(0.5) WITHIN GROUP (
            ORDER BY CASE
                WHEN traits & 3 <> 3 THEN NULL
                WHEN outcome = ANY(%(cut_off)s::text[]) THEN coalesce(ttft_us, timeout_us)
                WHEN outcome = ANY(%(streamed)s::text[]) THEN ttft_us
            END
        ) AS ttft_us,
        2 * count(timeout_us) FILTER (WHERE outcome = ANY(%(cut_off)s::text[]) AND ttft_us IS NULL)
            >= count(coalesce(ttft_us, timeout_us)) FILTER (WHERE outcome = ANY(%(streamed)s::text[]))
            AS ttft_limited,
        percentile_cont(0.5) WITHIN GROUP (
            ORDER BY CASE WHEN outcome = 'ok' AND traits & 3 = 3 THEN tokens_per_second END
        ) AS speed
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
    GROUP BY target_id, region, round_at
) AS medians
WHERE ttft_us IS NOT NULL OR speed IS NOT NULL
GROUP BY target_id, region

-- The changes of some targets that began since an instant.
-- name: changes_since
SELECT target_id, region, metric, changed_at
FROM drift_event
WHERE changed_at >= %(from_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])

-- Whether a change is already recorded: another run may have dated it some rounds earlier or later.
-- name: change_is_known
SELECT count(*) > 0 AS yes
FROM drift_event
WHERE target_id = %(target_id)s AND region = %(region)s AND metric = %(metric)s
    AND changed_at BETWEEN %(from_at)s AND %(until_at)s

-- Record a change.
-- name: insert_change
INSERT INTO drift_event (
    target_id, region, metric, changed_at, detected_at, before, after, p_value, n_before, n_after,
    may_be_weekly
)
VALUES (
    %(target_id)s, %(region)s, %(metric)s, %(changed_at)s, %(detected_at)s, %(before)s, %(after)s, %(p_value)s,
    %(n_before)s, %(n_after)s, %(may_be_weekly)s
)
ON CONFLICT DO NOTHING

-- The changes that began in a window, newest first.
-- name: changes_of_window
SELECT
    target_id, region, metric, changed_at, detected_at, before, after, p_value, n_before, n_after, may_be_weekly
FROM drift_event
WHERE changed_at >= %(from_at)s AND changed_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
ORDER BY changed_at DESC, target_id, region, metric

-- The numbers of rounds in which changes are searched, by target and region.
-- name: rounds_watched
SELECT
    target_id,
    region,
    count(DISTINCT round_at) FILTER (WHERE outcome = ANY(%(streamed)s::text[])) AS ttft,
    count(DISTINCT round_at) FILTER (WHERE outcome = 'ok' AND tokens_per_second IS NOT NULL) AS tokens_per_second
FROM sample
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
GROUP BY target_id, region

-- The last change of a metric within a window, by target and region.
-- name: newest_changes
SELECT target_id, region, max(changed_at) AS changed_at
FROM drift_event
WHERE changed_at >= %(from_at)s AND changed_at < %(until_at)s
    AND metric = %(metric)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
GROUP BY target_id, region
