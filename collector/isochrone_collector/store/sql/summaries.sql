-- Summaries of samples by the hour and by the day.

-- Every target that may have samples.
-- name: target_ids
SELECT id
FROM target
ORDER BY id

-- Whether there is any sample in a span of rounds.
-- name: any_samples
SELECT count(*) > 0 AS yes
FROM (
    SELECT 1 AS one
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    LIMIT 1
) AS found

-- Concatenated histograms of one resolution, with their lengths in four bytes each, and their regions as two-byte
-- positions in a list; with their beginnings, too, if those are asked for. By target and metric only: sorting them by
-- region would take longer than reading them.
-- name: joined_summaries
SELECT
    target_id,
    metric,
    string_agg(int2send(listed.place::smallint), ''::bytea) AS places,
    string_agg({starts}, ''::bytea) AS starts,
    string_agg(int4send(octet_length(histogram)), ''::bytea) AS known_sizes,
    string_agg(histogram, ''::bytea) AS known,
    string_agg(int4send(coalesce(octet_length(censored), 0)), ''::bytea) AS limit_sizes,
    string_agg(censored, ''::bytea) AS limits
FROM summary
JOIN unnest(%(regions)s::text[]) WITH ORDINALITY AS listed (name, place) ON listed.name = summary.region
WHERE resolution = %(resolution)s
    AND metric = ANY(%(metrics)s::text[])
    AND bucket_start >= %(from_at)s AND bucket_start < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
GROUP BY target_id, metric

-- The outcomes of the probes in the summaries of one resolution.
-- name: outcome_summaries
SELECT target_id, region, counts.outcomes, totals.cost_usd, totals.newest_at, totals.hours
FROM (
    SELECT
        target_id,
        region,
        sum(cost_usd) AS cost_usd,
        max(newest_at) AS newest_at,
        (count(*) * CASE WHEN %(resolution)s = 'day' THEN 24 ELSE 1 END)::double precision AS hours
    FROM outcome_summary
    WHERE resolution = %(resolution)s
        AND bucket_start >= %(from_at)s AND bucket_start < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND region = ANY(%(regions)s::text[])
    GROUP BY target_id, region
) AS totals
JOIN (
    SELECT target_id, region, jsonb_object_agg(outcome, probes) AS outcomes
    FROM (
        SELECT target_id, region, entry.key AS outcome, sum(entry.value::bigint)::bigint AS probes
        FROM outcome_summary
        CROSS JOIN LATERAL jsonb_each_text(outcomes) AS entry
        WHERE resolution = %(resolution)s
            AND bucket_start >= %(from_at)s AND bucket_start < %(until_at)s
            AND target_id = ANY(%(target_ids)s::bigint[])
            AND region = ANY(%(regions)s::text[])
        GROUP BY target_id, region, entry.key
    ) AS by_outcome
    GROUP BY target_id, region
) AS counts USING (target_id, region)

-- The counts of probes in the summaries of one resolution by outcome, concatenated per target in eight bytes each, with
-- their regions and outcomes as two-byte positions in lists, 0 for an outcome of a later version, and their beginnings.
-- name: outcomes_over_time
SELECT
    target_id,
    string_agg(int2send(listed.place::smallint), ''::bytea) AS places,
    string_agg(timestamptz_send(bucket_start), ''::bytea) AS starts,
    string_agg(
        int2send(coalesce(array_position(%(outcomes)s::text[], entry.key), 0)::smallint), ''::bytea
    ) AS outcomes,
    string_agg(int8send(entry.value::bigint), ''::bytea) AS probes
FROM outcome_summary
JOIN unnest(%(regions)s::text[]) WITH ORDINALITY AS listed (name, place) ON listed.name = outcome_summary.region
CROSS JOIN LATERAL jsonb_each_text(outcomes) AS entry
WHERE resolution = %(resolution)s
    AND bucket_start >= %(from_at)s AND bucket_start < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
GROUP BY target_id

-- Insert the summaries that do not exist yet.
-- name: insert_summaries
INSERT INTO summary (target_id, region, metric, resolution, bucket_start, values_count, histogram, censored)
SELECT target_id, region, metric, %(resolution)s, %(bucket_at)s, values_count, histogram, censored
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(metric)s::text[], %(values_count)s::integer[],
    %(histogram)b::bytea[], %(censored)b::bytea[]
) AS made (target_id, region, metric, values_count, histogram, censored)
ON CONFLICT DO NOTHING

-- Update the summaries that have changed.
-- name: update_summaries
UPDATE summary
SET values_count = made.values_count,
    histogram = made.histogram,
    censored = made.censored
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(metric)s::text[], %(values_count)s::integer[],
    %(histogram)b::bytea[], %(censored)b::bytea[]
) AS made (target_id, region, metric, values_count, histogram, censored)
WHERE summary.target_id = made.target_id
    AND summary.region = made.region
    AND summary.metric = made.metric
    AND summary.resolution = %(resolution)s
    AND summary.bucket_start = %(bucket_at)s
    AND (summary.histogram, summary.censored) IS DISTINCT FROM (made.histogram, made.censored)

-- Insert the outcome counts that do not exist yet.
-- name: insert_outcomes
INSERT INTO outcome_summary (target_id, region, resolution, bucket_start, outcomes, cost_usd, newest_at)
SELECT target_id, region, %(resolution)s, %(bucket_at)s, outcomes, cost_usd, newest_at
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(outcomes)s::jsonb[], %(cost_usd)s::double precision[],
    %(newest_at)b::timestamptz[]
) AS made (target_id, region, outcomes, cost_usd, newest_at)
ON CONFLICT DO NOTHING

-- Update the outcome counts that have changed.
-- name: update_outcomes
UPDATE outcome_summary
SET outcomes = made.outcomes,
    cost_usd = made.cost_usd,
    newest_at = made.newest_at
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(outcomes)s::jsonb[], %(cost_usd)s::double precision[],
    %(newest_at)b::timestamptz[]
) AS made (target_id, region, outcomes, cost_usd, newest_at)
WHERE outcome_summary.target_id = made.target_id
    AND outcome_summary.region = made.region
    AND outcome_summary.resolution = %(resolution)s
    AND outcome_summary.bucket_start = %(bucket_at)s
    AND (outcome_summary.outcomes, outcome_summary.newest_at) IS DISTINCT FROM (made.outcomes, made.newest_at)

-- The spans of hours of the batches of some transactions, as the first instants of their first and last hours; only of
-- batches with rounds before an instant.
-- name: touched_hours
SELECT DISTINCT
    date_bin('1 hour', oldest_round_at, timestamptz 'epoch') AS from_at,
    date_bin('1 hour', newest_round_at, timestamptz 'epoch') AS until_at
FROM ingest_batch
WHERE transaction_id >= %(first)s AND transaction_id < %(until)s
    AND oldest_round_at < %(before_at)s

-- The histograms of the hours of one target, of all regions and metrics.
-- name: hours_of_target
SELECT region, metric, bucket_start, histogram, censored
FROM summary
WHERE resolution = 'hour'
    AND bucket_start >= %(from_at)s AND bucket_start < %(until_at)s
    AND target_id = %(target_id)s

-- The outcomes of the hours of one target, of all regions.
-- name: outcomes_of_target
SELECT region, bucket_start, outcomes
FROM outcome_summary
WHERE resolution = 'hour'
    AND bucket_start >= %(from_at)s AND bucket_start < %(until_at)s
    AND target_id = %(target_id)s

-- Insert the hourly levels of series that have none yet.
-- name: insert_hourly_levels
INSERT INTO hourly_levels (target_id, region, metric, quantity, until_at, noise, quantile, levels)
SELECT target_id, region, metric, quantity, %(until_at)s, noise, quantile, levels
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(metric)s::text[], %(quantity)s::text[],
    %(noise)s::double precision[], %(quantile)s::double precision[], %(levels)b::bytea[]
) AS made (target_id, region, metric, quantity, noise, quantile, levels)
ON CONFLICT DO NOTHING

-- Write hourly levels in place of those of an earlier day.
-- name: update_hourly_levels
UPDATE hourly_levels
SET until_at = %(until_at)s,
    noise = made.noise,
    quantile = made.quantile,
    levels = made.levels
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(metric)s::text[], %(quantity)s::text[],
    %(noise)s::double precision[], %(quantile)s::double precision[], %(levels)b::bytea[]
) AS made (target_id, region, metric, quantity, noise, quantile, levels)
WHERE hourly_levels.target_id = made.target_id
    AND hourly_levels.region = made.region
    AND hourly_levels.metric = made.metric
    AND hourly_levels.quantity = made.quantity

-- The hourly levels of some quantities, with the regions of each target in one row.
-- name: hourly_levels
SELECT
    target_id,
    metric,
    quantity,
    array_agg(region) AS regions,
    array_agg(until_at) AS until_at,
    array_agg(noise) AS noise,
    array_agg(quantile) AS quantile,
    string_agg(levels, ''::bytea) AS levels
FROM hourly_levels
JOIN unnest(%(metrics)s::text[], %(quantities)s::text[]) AS asked (metric, quantity) USING (metric, quantity)
WHERE target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
GROUP BY target_id, metric, quantity
