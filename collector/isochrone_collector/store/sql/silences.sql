-- Silences of alerts, and acknowledgements of problems.

-- Add one.
-- name: add_silence
INSERT INTO silence (
    id, targets, providers, regions, kinds, thread, subject, reason, created_by, created_at, until_at
)
VALUES (
    %(id)s, %(targets)s, %(providers)s, %(regions)s, %(kinds)s, %(thread)s, %(subject)s, %(reason)s, %(created_by)s,
    %(created_at)s, %(until_at)s
)

-- End one before its time, unless it has ended.
-- name: end_silence
UPDATE silence
SET ended_at = %(at)s,
    ended_by = %(by)s
WHERE id = %(id)s AND ended_at IS NULL AND until_at > %(at)s

-- One silence.
-- name: silence_by_id
SELECT id, targets, providers, regions, kinds, thread, subject, reason, created_by, created_at, until_at, ended_at,
    ended_by
FROM silence
WHERE id = %(id)s

-- The silences in force at an instant, or all, newest first.
-- name: silences_at
SELECT id, targets, providers, regions, kinds, thread, subject, reason, created_by, created_at, until_at, ended_at,
    ended_by
FROM silence
WHERE %(past)s OR (ended_at IS NULL AND until_at > %(at)s)
ORDER BY created_at DESC, id
LIMIT %(limit)s
