-- Route tables, and notifications between collectors.

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

-- Whether a table of a generation was built at an instant.
-- name: has_route_table
SELECT count(*) > 0 AS yes
FROM route_table
WHERE generation = %(generation)s AND built_at = %(built_at)s

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
WHERE built_at < CASE WHEN change = 'evidence' THEN %(evidence_at)s ELSE %(events_at)s END
    AND generation < (
        SELECT max(newer.generation)
        FROM route_table AS newer
        WHERE newer.client_region = route_table.client_region AND newer.route = route_table.route
    )

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
