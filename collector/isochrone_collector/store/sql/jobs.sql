-- The leader lock, and the progress of jobs.

-- Take the leader lock if it is free; it is held until the session ends.
-- name: try_leader_lock
SELECT pg_try_advisory_lock(%(key)s) AS yes

-- Whether this server accepts writes.
-- name: is_primary
SELECT NOT pg_is_in_recovery() AS yes

-- The progress of each job that is done once for all collectors.
-- name: progress
SELECT name, done_until
FROM chore

-- The first transaction or generation that is not done by a job.
-- name: next_number
SELECT next_number
FROM chore
WHERE name = %(name)s

-- Record the progress of a job.
-- name: advance
UPDATE chore
SET done_until = %(until_at)s,
    next_number = %(next_number)s
WHERE name = %(name)s

-- Record the first progress of a job.
-- name: begin
INSERT INTO chore (name, done_until, next_number)
VALUES (%(name)s, %(until_at)s, %(next_number)s)
ON CONFLICT DO NOTHING

-- Forget the record of a job.
-- name: forget_progress
DELETE FROM chore
WHERE name = %(name)s
