-- What a comparison of regions needs beside the probes themselves.

-- When a metric last changed lastingly within the window, by target and region.
-- name: newest_changes
SELECT target_id, region, max(changed_at) AS changed_at
FROM drift_event
WHERE changed_at >= %(from_at)s AND changed_at < %(until_at)s
    AND metric = %(metric)s
    AND target_id = ANY(%(target_ids)s::bigint[])
    AND (%(regions)s::text[] IS NULL OR region = ANY(%(regions)s))
GROUP BY target_id, region
