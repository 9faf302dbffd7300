-- Alerts, and the results of their delivery.

-- Raise an alert; the second time no row is returned.
-- name: raise_alert
INSERT INTO alert (id, kind, subject, sentence, details, raised_at, next_attempt_at)
VALUES (
    %(id)s, %(kind)s, %(subject)s, %(sentence)s, %(details)s, %(raised_at)s, %(next_attempt_at)s
)
ON CONFLICT DO NOTHING

-- The alerts that are to be delivered now, the oldest first.
-- name: due_alerts
SELECT id, kind, subject, sentence, details, raised_at, attempts
FROM alert
WHERE next_attempt_at <= %(now_at)s AND delivered_at IS NULL
ORDER BY next_attempt_at
LIMIT %(limit)s

-- Record the result of an attempt.
-- name: record_attempt
UPDATE alert
SET attempts = attempts + 1,
    delivered_at = %(delivered_at)s,
    next_attempt_at = %(next_attempt_at)s,
    last_error = %(last_error)s
WHERE id = %(id)s

-- The alerts raised in a window, newest first.
-- name: alerts_of_window
SELECT id, kind, subject, sentence, raised_at, delivered_at, attempts, last_error
FROM alert
WHERE raised_at >= %(from_at)s AND raised_at < %(until_at)s
ORDER BY raised_at DESC, id
LIMIT %(limit)s

-- One alert as it is now.
-- name: alert_by_id
SELECT id, kind, subject, sentence, raised_at, delivered_at, attempts, last_error
FROM alert
WHERE id = %(id)s

-- The last alert of some kinds about each subject.
-- name: newest_alerts
SELECT DISTINCT ON (subject) id, kind, subject, raised_at
FROM alert
WHERE kind = ANY(%(kinds)s::text[])
ORDER BY subject, raised_at DESC, id
