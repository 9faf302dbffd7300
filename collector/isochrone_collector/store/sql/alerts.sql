-- Alerts, and the results of their delivery.

-- Raise an alert; the second time no row is returned.
-- name: raise_alert
INSERT INTO alert (id, kind, subject, sentence, details, raised_at)
VALUES (%(id)s, %(kind)s, %(subject)s, %(sentence)s, %(details)s, %(raised_at)s)
ON CONFLICT DO NOTHING

-- The alerts raised in a window, newest first.
-- name: alerts_of_window
SELECT id, kind, subject, sentence, raised_at
FROM alert
WHERE raised_at >= %(from_at)s AND raised_at < %(until_at)s
ORDER BY raised_at DESC, id
LIMIT %(limit)s

-- One alert as it is now.
-- name: alert_by_id
SELECT id, kind, subject, sentence, raised_at
FROM alert
WHERE id = %(id)s

-- The last alert of some kinds about each subject.
-- name: newest_alerts
SELECT DISTINCT ON (subject) id, kind, subject, raised_at
FROM alert
WHERE kind = ANY(%(kinds)s::text[])
ORDER BY subject, raised_at DESC, id

-- The last alert about one problem, which is an incident or the alert that began it.
-- name: newest_of_thread
SELECT id, kind, subject, sentence, details, raised_at
FROM alert
WHERE id = %(id)s
    OR details ->> 'incident' = %(thread)s
    OR details ->> 'absence' = %(thread)s
    OR details ->> 'breach' = %(thread)s
ORDER BY raised_at DESC, id
LIMIT 1
