-- What the phases of single requests took.

-- Every probe with a first token, as columns of numbers per target and region.
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
    AND ttft_us IS NOT NULL
GROUP BY target_id, region
