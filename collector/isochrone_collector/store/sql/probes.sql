-- Probes for queries. SQL selects them; Python estimates.

-- Every probe with its value of one metric, as the bytes of a few numbers, concatenated per target: half the size of
-- arrays, and faster to aggregate. Small values share one number: the position of the region in the list, the kind of
-- the outcome, and a flag for limits.
-- name: probes
SELECT
    target_id,
    string_agg(
        int4send(place * 8 + kind * 2 + (value IS NULL AND ceiling IS NOT NULL)::integer)
            || int8send(vantage_id)
            || timestamptz_send(round_at)
            || float8send(coalesce(value, ceiling, 'NaN'))
            || float8send(coalesce(network, 'NaN')),
        ''
    ) AS probes
FROM (
    SELECT
        target_id,
        vantage_id,
        round_at,
        region,
        CASE
            WHEN outcome = 'ok' THEN {ok}
            WHEN outcome = 'throttled' THEN {throttled}
            WHEN starts_with(outcome, 'skipped_') THEN {skipped}
            ELSE {failed}
        END AS kind,
        (CASE WHEN {counts} THEN {value} END)::double precision AS value,
        (CASE WHEN {counts} THEN {ceiling} END)::double precision AS ceiling,
        ({network})::double precision AS network
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND region = ANY(%(regions)s::text[])
) AS probe
JOIN (
    SELECT name AS region, (nth - 1)::integer AS place
    FROM unnest(%(regions)s::text[]) WITH ORDINALITY AS listed (name, nth)
) AS places USING (region)
GROUP BY target_id

-- The rounds that each vantage recorded of each target, and their outcomes.
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

-- Every probe with a valid first token that began in time, as columns of numbers per target and region.
-- name: phases
SELECT
    target_id,
    region,
    array_agg(round_at) AS round_at,
    array_agg(coalesce(dns_us, 'NaN'::double precision)) AS dns,
    array_agg(coalesce(tcp_us, 'NaN'::double precision)) AS tcp,
    array_agg(coalesce(tls_us, 'NaN'::double precision)) AS tls,
    array_agg(coalesce(rtt_us, 'NaN'::double precision)) AS rtt,
    array_agg(ttft_us::double precision) AS ttft,
    array_agg(coalesce(provider_us, 'NaN'::double precision)) AS provider
FROM sample
WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
    AND outcome IN ('ok', 'timed_out', 'stalled', 'truncated')
    AND {valid}
    AND {punctual}
    AND ttft_us IS NOT NULL
GROUP BY target_id, region

-- The batches with stored samples that were received since an instant, by the collectors' clocks: the epoch, the number,
-- and the oldest and the newest round of each, as bytes, concatenated per vantage.
-- name: batches_since
SELECT
    vantage_id,
    vantage.region AS region,
    string_agg(
        int8send(ingest_batch.epoch)
            || int8send(seq)
            || timestamptz_send(oldest_round_at)
            || timestamptz_send(newest_round_at),
        ''
    ) AS batches
FROM ingest_batch
JOIN vantage ON vantage.id = ingest_batch.vantage_id
WHERE received_at >= %(since_at)s AND oldest_round_at IS NOT NULL
GROUP BY vantage_id, vantage.region

-- Probes as records, the bytes of a few numbers each, concatenated per target. See `analysis.probe_records`, which has
-- the meaning of the numbers. A probe without a first token has its timeout in place of it.
-- name: probe_records
SELECT
    string_agg(
        int8send(vantage_id)
            || int8send(target_id)
            || timestamptz_send(round_at)
            || int2send((
                coalesce(array_position(%(outcomes)s::text[], outcome) - 1, cardinality(%(outcomes)s::text[])) * 8
                    + (ttft_us IS NOT NULL)::integer * 4
                    + ({punctual})::integer * 2
                    + {valid}::integer
            )::smallint)
            || float8send(coalesce(ttft_us, timeout_us, 'NaN'::double precision))
            || float8send(coalesce(tokens_per_second, 'NaN'))
            || float8send(coalesce(rtt_us, 'NaN'::double precision))
            || float8send(
                coalesce(CASE WHEN {has_answer_time} THEN {answer_from} END, 'NaN'::double precision)
            )
            || float8send(coalesce(first_chunk_tokens, 'NaN'::double precision)),
        ''
    ) AS records
FROM sample
WHERE target_id = ANY(%(target_ids)s::bigint[])
    AND round_at >= %(from_at)s
    AND round_at <= %(until_at)s
    AND {chosen}
GROUP BY target_id
