-- What readers' questions select. SQL selects, pairs and bounds; Python estimates.

-- The newest samples of a selection, with the name of the vantage each came from.
-- name: samples
SELECT vantage.name AS vantage, {columns}
FROM sample
JOIN vantage ON vantage.id = sample.vantage_id
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR sample.region = ANY(%(regions)s))
ORDER BY round_at DESC, target_id, vantage_id, epoch, seq DESC, idx DESC
LIMIT %(limit)s

-- The regions that have any sample of a selection.
-- name: regions_with_samples
SELECT DISTINCT region AS name
FROM sample
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
ORDER BY region

-- One metric as a series per target and region: the median of each round, and whether the round was cut off by a
-- timeout, in which case the value is the limit that was hit.
-- name: series
SELECT
    target_id,
    region,
    array_agg(round_at ORDER BY round_at) AS rounds,
    array_agg(value ORDER BY round_at) AS medians,
    array_agg(censored ORDER BY round_at) AS censored
FROM (
    SELECT
        target_id,
        region,
        round_at,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY value) AS value,
        bool_or(censored) AS censored
    FROM (
        SELECT
            target_id,
            region,
            round_at,
            coalesce({value}, {ceiling})::double precision AS value,
            {value} IS NULL AS censored
        FROM sample
        WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
            AND target_id = ANY(%(target_ids)s::bigint[])
            AND region = ANY(%(regions)s::text[])
    ) AS probes
    WHERE value IS NOT NULL
    GROUP BY target_id, region, round_at
) AS medians_of_rounds
GROUP BY target_id, region

-- What a leaderboard needs of each target and region: the values themselves, because percentiles are never averaged.
-- name: standings
SELECT
    target_id,
    region,
    array_agg(ttft_us) FILTER (
        WHERE ttft_us IS NOT NULL AND outcome IN ('ok', 'timed_out', 'stalled', 'truncated')
    ) AS ttft_us,
    array_agg(coalesce(timeout_us, 0)) FILTER (
        WHERE ttft_us IS NULL AND outcome IN ('timed_out', 'stalled')
    ) AS censored_us,
    array_agg(tokens_per_second) FILTER (
        WHERE tokens_per_second IS NOT NULL AND outcome = 'ok'
    ) AS tokens_per_second,
    count(*) FILTER (
        WHERE outcome NOT IN ('ok', 'throttled') AND NOT starts_with(outcome, 'skipped_')
    ) AS failed,
    max(round_at) AS newest_at
FROM sample
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
GROUP BY target_id, region

-- Which rounds each vantage recorded of each target, and how they ended.
-- name: recorded
SELECT
    rounds.vantage_id,
    rounds.target_id,
    rounds.recorded,
    rounds.oldest_at,
    rounds.newest_at,
    outcomes.counts AS outcomes
FROM (
    SELECT
        vantage_id,
        target_id,
        count(DISTINCT round_at) AS recorded,
        min(round_at) AS oldest_at,
        max(round_at) AS newest_at
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
    GROUP BY vantage_id, target_id
) AS rounds
JOIN (
    SELECT vantage_id, target_id, jsonb_object_agg(outcome, probes) AS counts
    FROM (
        SELECT vantage_id, target_id, outcome, count(*) AS probes
        FROM sample
        WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
            AND target_id = ANY(%(target_ids)s::bigint[])
        GROUP BY vantage_id, target_id, outcome
    ) AS by_outcome
    GROUP BY vantage_id, target_id
) AS outcomes USING (vantage_id, target_id)
