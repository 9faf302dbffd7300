-- Which collector does what is done once.

-- Leadership, when nobody has it; kept until the session ends.
-- name: try_leader_lock
SELECT pg_try_advisory_lock(%(key)s) AS yes

-- Whether this server takes writes.
-- name: is_primary
SELECT NOT pg_is_in_recovery() AS yes

-- How far each chore has come that is done once for all collectors.
-- name: progress
SELECT name, done_until
FROM chore

-- A chore has come further.
-- name: advance
UPDATE chore
SET done_until = %(done_until)s
WHERE name = %(name)s

-- A chore was done for the first time.
-- name: begin
INSERT INTO chore (name, done_until)
VALUES (%(name)s, %(done_until)s)
ON CONFLICT DO NOTHING
