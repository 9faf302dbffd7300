-- Summaries: what is left of samples, by the hour and by the day.

-- Every target that may have samples.
-- name: target_ids
SELECT id
FROM target
ORDER BY id

-- Whether there is any sample of a span.
-- name: any_samples
SELECT EXISTS (
    SELECT FROM sample WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
) AS yes

-- The values of some targets in an hour, end to end in eight bytes each, and the places of the outcomes in a list, in
-- two; columns without any are NULL.
-- name: values_of_hour
SELECT
    target_id,
    region,
    {values},
    string_agg(int2send(array_position(%(outcomes)s::text[], outcome)::smallint), ''::bytea) AS outcomes,
    sum(cost_usd) AS cost_usd,
    max(round_at) AS newest_at
FROM sample
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
GROUP BY target_id, region

-- Histograms of one resolution end to end, which merges them; with each its length in four bytes and the place of its
-- region in a list in two. By target and metric only: to sort them by region would take longer than to read them.
-- name: joined_summaries
SELECT
    target_id,
    metric,
    string_agg(int2send(listed.place::smallint), ''::bytea) AS places,
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

-- How the probes of one resolution ended.
-- name: outcome_summaries
SELECT target_id, region, counts.outcomes, totals.cost_usd, totals.newest_at
FROM (
    SELECT target_id, region, sum(cost_usd) AS cost_usd, max(newest_at) AS newest_at
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

-- Summaries that are not there yet.
-- name: insert_summaries
INSERT INTO summary (target_id, region, metric, resolution, bucket_start, values_count, histogram, censored)
SELECT target_id, region, metric, %(resolution)s, %(bucket_start)s, values_count, histogram, censored
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(metric)s::text[], %(values_count)s::integer[],
    %(histogram)b::bytea[], %(censored)b::bytea[]
) AS told (target_id, region, metric, values_count, histogram, censored)
ON CONFLICT DO NOTHING

-- Summaries that say something else by now.
-- name: update_summaries
UPDATE summary
SET values_count = told.values_count,
    histogram = told.histogram,
    censored = told.censored
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(metric)s::text[], %(values_count)s::integer[],
    %(histogram)b::bytea[], %(censored)b::bytea[]
) AS told (target_id, region, metric, values_count, histogram, censored)
WHERE summary.target_id = told.target_id
    AND summary.region = told.region
    AND summary.metric = told.metric
    AND summary.resolution = %(resolution)s
    AND summary.bucket_start = %(bucket_start)s
    AND (summary.histogram, summary.censored) IS DISTINCT FROM (told.histogram, told.censored)

-- Accounts of outcomes that are not there yet.
-- name: insert_outcomes
INSERT INTO outcome_summary (target_id, region, resolution, bucket_start, outcomes, cost_usd, newest_at)
SELECT target_id, region, %(resolution)s, %(bucket_start)s, outcomes, cost_usd, newest_at
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(outcomes)s::jsonb[], %(cost_usd)s::double precision[],
    %(newest_at)b::timestamptz[]
) AS told (target_id, region, outcomes, cost_usd, newest_at)
ON CONFLICT DO NOTHING

-- Accounts of outcomes that say something else by now.
-- name: update_outcomes
UPDATE outcome_summary
SET outcomes = told.outcomes,
    cost_usd = told.cost_usd,
    newest_at = told.newest_at
FROM unnest(
    %(target_id)s::bigint[], %(region)s::text[], %(outcomes)s::jsonb[], %(cost_usd)s::double precision[],
    %(newest_at)b::timestamptz[]
) AS told (target_id, region, outcomes, cost_usd, newest_at)
WHERE outcome_summary.target_id = told.target_id
    AND outcome_summary.region = told.region
    AND outcome_summary.resolution = %(resolution)s
    AND outcome_summary.bucket_start = %(bucket_start)s
    AND (outcome_summary.outcomes, outcome_summary.newest_at) IS DISTINCT FROM (told.outcomes, told.newest_at)

-- Which hours the batches touched that came in a span of time, as first and last instants of hours; only those that
-- reach back before an instant.
-- name: touched_hours
SELECT DISTINCT
    date_bin('1 hour', oldest_round_at, timestamptz 'epoch') AS from_at,
    date_bin('1 hour', newest_round_at, timestamptz 'epoch') AS until_at
FROM ingest_batch
WHERE received_at >= %(received_from_at)s AND received_at < %(received_until_at)s
    AND oldest_round_at < %(before_at)s
