-- Route tables, and the probes from which they are decided.

-- Publish a table. Its generation is its key, so of two simultaneous leaders only one can publish it.
-- name: insert_route_table
INSERT INTO route_table (generation, client_region, route, built_at, change, sentence, document, inputs, before, after)
VALUES (
    %(generation)s, %(client_region)s, %(route)s, %(built_at)s, %(change)s, %(sentence)s, %(document)s, %(inputs)s,
    %(before)s, %(after)s
)

-- The newest table of each route and region, and the state after it.
-- name: newest_route_tables
SELECT generation, document, after
FROM route_table
WHERE generation IN (SELECT max(generation) FROM route_table GROUP BY client_region, route)
ORDER BY generation

-- The highest generation, 0 before the first.
-- name: newest_generation
SELECT coalesce(max(generation), 0) AS generation
FROM route_table

-- The highest generation that was built by an instant, 0 before the first.
-- name: generation_at
SELECT coalesce(max(generation), 0) AS generation
FROM route_table
WHERE built_at <= %(at)s

-- The tables after a generation, in order; of one region or one route if it is named.
-- name: route_tables_after
SELECT generation, document
FROM route_table
WHERE generation > %(after)s
    AND (%(client_region)s = '' OR client_region = %(client_region)s)
    AND (%(route)s = '' OR route = %(route)s)
ORDER BY generation
LIMIT %(limit)s

-- Every region and route that has a table.
-- name: known_routes
SELECT client_region, route
FROM route_table
GROUP BY client_region, route

-- One table with the inputs of its decision: that of a generation, or the newest of a route in a region.
-- name: route_table_in_full
SELECT generation, document, inputs, before
FROM route_table
WHERE client_region = %(client_region)s AND route = %(route)s
    AND (%(generation)s::bigint = 0 OR generation = %(generation)s)
ORDER BY generation DESC
LIMIT 1

-- The changes of routes, without mere refreshes, and the weights of the members since then.
-- name: route_events
SELECT
    generation,
    client_region,
    route,
    built_at AS at,
    change,
    sentence,
    (
        SELECT coalesce(json_object_agg(entry ->> 'target', entry -> 'weight'), json_build_object())
        FROM json_array_elements(document::json -> 'entries') AS entry
    ) AS weights
FROM route_table
WHERE built_at >= %(from_at)s AND built_at < %(until_at)s AND change <> 'evidence'
    AND (%(regions)s::text[] IS NULL OR client_region = ANY(%(regions)s))
    AND (%(route)s = '' OR route = %(route)s)
ORDER BY generation DESC
LIMIT %(limit)s

-- Delete old tables: refreshes after a while, changes later, and the newest of each route never.
-- name: forget_route_tables
DELETE FROM route_table
WHERE built_at < CASE WHEN change = 'evidence' THEN %(evidence_before)s ELSE %(events_before)s END
    AND generation < (
        SELECT max(newer.generation)
        FROM route_table AS newer
        WHERE newer.client_region = route_table.client_region AND newer.route = route_table.route
    )

-- The probes from which tables are decided: stored since an instant, of rounds since another, as columns of numbers per
-- target. Small values share one number, as in `probes`.
-- name: probe_columns
SELECT
    target_id,
    array_agg(
        place * 16 + comparable::integer * 8 + kind * 2 + (value IS NULL AND ceiling IS NOT NULL)::integer
    ) AS traits,
    array_agg(round_at) AS round_at,
    array_agg(vantage_id) AS vantage_id,
    array_agg(epoch) AS epoch,
    array_agg(seq) AS seq,
    array_agg(idx) AS idx,
    array_agg(coalesce(value, ceiling, 'NaN')) AS ttft_us,
    array_agg(coalesce(rtt_us, 'NaN')) AS rtt_us,
    array_agg(coalesce(speed, 'NaN')) AS tokens_per_second,
    array_agg(coalesce(answer_from, 'NaN')) AS answer_from_us,
    array_agg(coalesce(first_chunk_tokens, 'NaN')) AS first_chunk_tokens
FROM (
    SELECT
        target_id,
        round_at,
        vantage_id,
        epoch,
        seq,
        idx,
        region,
        CASE
            WHEN outcome = 'ok' THEN 0
            WHEN outcome IN ('throttled', 'skipped_throttled') THEN 2
            WHEN starts_with(outcome, 'skipped_') THEN 3
            ELSE 1
        END AS kind,
        {punctual} AND outcome <> 'connect_failed' AS comparable,
        CASE
            WHEN outcome IN ('ok', 'timed_out', 'stalled', 'truncated') AND {valid} THEN ttft_us
        END::double precision AS value,
        CASE
            WHEN ttft_us IS NULL AND outcome IN ('timed_out', 'stalled', 'connect_failed') THEN timeout_us
        END::double precision AS ceiling,
        rtt_us::double precision AS rtt_us,
        CASE WHEN outcome = 'ok' AND {valid} THEN tokens_per_second END AS speed,
        CASE WHEN outcome = 'ok' AND {valid} AND tokens_per_second > 0 THEN {answer_from} END::double precision
            AS answer_from,
        first_chunk_tokens::double precision AS first_chunk_tokens
    FROM sample
    WHERE target_id = ANY(%(target_ids)s::bigint[])
        AND round_at >= %(from_at)s
        AND received_at >= %(since_at)s
        AND region = ANY(%(regions)s::text[])
) AS probe
JOIN (
    SELECT name AS region, (nth - 1)::integer AS place
    FROM unnest(%(regions)s::text[]) WITH ORDINALITY AS listed (name, nth)
) AS places USING (region)
GROUP BY target_id

-- The oldest round of the batches received since an instant; NULL when there are none.
-- name: oldest_round_since
SELECT min(oldest_round_at) AS at
FROM ingest_batch
WHERE received_at >= %(since_at)s

-- Notify every collector that listens on a channel.
-- name: notify
SELECT pg_notify(%(channel)s, '')

-- Listen for stored samples.
-- name: listen_for_samples
LISTEN isochrone_samples

-- Listen for published tables.
-- name: listen_for_tables
LISTEN isochrone_routes

-- Listen for alerts that were raised.
-- name: listen_for_alerts
LISTEN isochrone_alerts
