-- Which collector does what is done once.

-- The server ends a session whose client is gone within half a minute, and its lock with it.
-- name: notice_lost_leader_soon
SELECT
    set_config('tcp_keepalives_idle', '10', false),
    set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false)

-- Leadership, when nobody has it; kept until the session ends.
-- name: try_to_lead
SELECT pg_try_advisory_lock(%(key)s) AS yes

-- Whether this server takes writes.
-- name: is_primary
SELECT NOT pg_is_in_recovery() AS yes
