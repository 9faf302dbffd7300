-- Deliveries of alerts to receivers.

-- Schedule the delivery of an alert to a receiver.
-- name: add_delivery
INSERT INTO alert_delivery (alert_id, receiver, thread, next_attempt_at)
VALUES (%(alert_id)s, %(receiver)s, %(thread)s, %(next_attempt_at)s)
ON CONFLICT DO NOTHING

-- The alerts that a receiver is to get, oldest first.
-- name: pending_deliveries
SELECT
    alert.id, kind, subject, sentence, details, raised_at, alert_delivery.next_attempt_at, first_attempt_at,
    alert_delivery.attempts, repeats, is_silenced
FROM alert_delivery
JOIN alert ON alert.id = alert_delivery.alert_id
WHERE receiver = %(receiver)s AND alert_delivery.next_attempt_at IS NOT NULL
ORDER BY raised_at, alert.id
LIMIT %(limit)s

-- The number of the alerts that each of some receivers should have, because they were due by an instant or have been
-- tried, without those that a silence holds.
-- name: count_overdue
SELECT alert_delivery.receiver, count(*) AS n
FROM alert_delivery
JOIN unnest(%(receivers)s::text[], %(due_at)b::timestamptz[]) AS chosen (receiver, due_by)
    ON chosen.receiver = alert_delivery.receiver
WHERE next_attempt_at IS NOT NULL AND NOT is_silenced AND (attempts > 0 OR next_attempt_at <= chosen.due_by)
GROUP BY alert_delivery.receiver

-- What a receiver knows of problems whose end it has not got, oldest first.
-- name: open_deliveries
SELECT
    alert.id, kind, subject, sentence, details, raised_at, key, alert_delivery.delivered_at,
    alert_delivery.next_attempt_at IS NOT NULL AS is_pending
FROM alert_delivery
JOIN alert ON alert.id = alert_delivery.alert_id
WHERE receiver = %(receiver)s AND is_open
ORDER BY raised_at, alert.id

-- Record that a receiver accepted some alerts.
-- name: record_delivered
UPDATE alert_delivery
SET attempts = attempts + 1,
    next_attempt_at = NULL,
    first_attempt_at = NULL,
    delivered_at = %(at)s,
    last_error = '',
    key = %(key)s,
    is_open = %(is_open)s,
    is_silenced = false
WHERE receiver = %(receiver)s AND alert_id = ANY(%(alert_ids)s::bigint[])

-- Record that a receiver has the end of some problems, or will never get it.
-- name: close_problems
UPDATE alert_delivery
SET is_open = false
WHERE receiver = %(receiver)s AND thread = ANY(%(threads)s::text[]) AND is_open

-- Record an attempt that failed.
-- name: record_failed
UPDATE alert_delivery
SET attempts = attempts + 1,
    next_attempt_at = %(next_attempt_at)s,
    first_attempt_at = coalesce(first_attempt_at, %(at)s),
    last_error = %(last_error)s,
    is_silenced = false
WHERE receiver = %(receiver)s AND alert_id = %(alert_id)s

-- Record that a silence holds some alerts.
-- name: hold_deliveries
UPDATE alert_delivery
SET is_silenced = true
WHERE receiver = %(receiver)s AND alert_id = ANY(%(alert_ids)s::bigint[])

-- Record that some alerts are never sent, because of a silence or because something newer is.
-- name: drop_deliveries
UPDATE alert_delivery
SET is_silenced = delivered_at IS NULL,
    next_attempt_at = NULL
WHERE receiver = %(receiver)s AND alert_id = ANY(%(alert_ids)s::bigint[])

-- Schedule delivered alerts once more.
-- name: repeat_deliveries
UPDATE alert_delivery
SET next_attempt_at = %(at)s,
    attempts = 0,
    repeats = repeats + 1
WHERE receiver = %(receiver)s AND alert_id = ANY(%(alert_ids)s::bigint[])

-- The deliveries of some alerts.
-- name: deliveries_of_alerts
SELECT alert_id, receiver, next_attempt_at IS NOT NULL AS is_pending, delivered_at, attempts, last_error, is_silenced
FROM alert_delivery
WHERE alert_id = ANY(%(alert_ids)s::bigint[])
ORDER BY alert_id, receiver
