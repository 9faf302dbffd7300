-- The values behind leaderboards, latency targets and tiers.

-- Every probe of each target and region with its values of all metrics, because percentiles are never averaged, or the
-- limits that cut it off, as the bytes of a few numbers, concatenated. Small values share one number: the kind of the
-- outcome, and a flag for each limit.
-- name: standings
SELECT
    target_id,
    region,
    string_agg(
        int4send(
            kind
                + (ttft IS NULL AND ttft_limit IS NOT NULL)::integer * 4
                + (ttft_cold IS NULL AND ttft_cold_limit IS NOT NULL)::integer * 8
                + (ttfat IS NULL AND ttfat_limit IS NOT NULL)::integer * 16
                + (e2e IS NULL AND e2e_limit IS NOT NULL)::integer * 32
        )
            || timestamptz_send(round_at)
            || float8send(coalesce(ttft, ttft_limit, 'NaN'))
            || float8send(coalesce(ttft_cold, ttft_cold_limit, 'NaN'))
            || float8send(coalesce(ttfat, ttfat_limit, 'NaN'))
            || float8send(coalesce(e2e, e2e_limit, 'NaN'))
            || float8send(coalesce(tokens_per_second, 'NaN')),
        ''
    ) AS probes
FROM (
    SELECT
        target_id,
        region,
        round_at,
        CASE
            WHEN outcome = 'ok' THEN {ok}
            WHEN outcome = 'throttled' THEN {throttled}
            WHEN starts_with(outcome, 'skipped_') THEN {skipped}
            ELSE {failed}
        END AS kind,
        ({ttft})::double precision AS ttft,
        ({ttft_limit})::double precision AS ttft_limit,
        ({ttft_cold})::double precision AS ttft_cold,
        ({ttft_cold_limit})::double precision AS ttft_cold_limit,
        ({ttfat})::double precision AS ttfat,
        ({ttfat_limit})::double precision AS ttfat_limit,
        ({e2e})::double precision AS e2e,
        ({e2e_limit})::double precision AS e2e_limit,
        ({tokens_per_second})::double precision AS tokens_per_second
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
) AS probe
GROUP BY target_id, region

-- The number of samples, up to a limit.
-- name: samples_up_to
SELECT count(*) AS many
FROM (
    SELECT 1 AS one
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
    LIMIT %(limit)s
) AS found

-- Every round with what decides whether its request was answered in time, as the bytes of a few numbers, concatenated
-- per target. Rounds that were skipped are no requests.
-- name: requests
SELECT
    target_id,
    string_agg(
        int4send(place * 4 + ending)
            || timestamptz_send(round_at)
            || float8send(coalesce(ttft, 'NaN'))
            || float8send(coalesce(e2e, 'NaN'))
            || float8send(coalesce(ceiling, 'NaN'))
            || float8send(coalesce(speed, 'NaN')),
        ''
    ) AS probes
FROM (
    SELECT
        target_id,
        region,
        round_at,
        CASE
            WHEN outcome = 'ok' THEN {answered}
            WHEN outcome = 'throttled' THEN {throttled}
            WHEN starts_with(outcome, 'skipped_') THEN {none}
            ELSE {failed}
        END AS ending,
        ({ttft})::double precision AS ttft,
        ({e2e})::double precision AS e2e,
        ({ceiling})::double precision AS ceiling,
        CASE WHEN outcome = 'ok' AND {valid} THEN tokens_per_second END AS speed
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s
        AND target_id = ANY(%(target_ids)s::bigint[])
        AND region = ANY(%(regions)s::text[])
) AS request
JOIN (
    SELECT name AS region, (nth - 1)::integer AS place
    FROM unnest(%(regions)s::text[]) WITH ORDINALITY AS listed (name, nth)
) AS places USING (region)
GROUP BY target_id
