-- Settings of sessions and transactions.

-- How a connection is set up that only answers questions: none takes longer than somebody is willing to wait, no plan is
-- compiled first, which takes longer than it saves, and what is sorted is sorted in memory, at half the time.
-- name: limit_read_queries
SELECT
    set_config('statement_timeout', %(timeout)s, false),
    set_config('jit', 'off', false),
    CASE
        WHEN pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('64MB') THEN set_config('work_mem', '64MB', false)
    END

-- Acknowledged means on disk, also where the server's default says otherwise.
-- name: make_commits_durable
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'

-- Compiling a statement of many aggregates would take longer than most of them do.
-- name: disable_jit
SELECT set_config('jit', 'off', true)

-- How a transaction is set up that gathers many rounds: no plan is compiled first, what is sorted is sorted in memory,
-- and pages are read in their order and not in that of targets, each of which has rows in all of them. Of a day that is
-- filling up the server believes that it has few rows, and would read each page once for every target.
-- name: prepare_round_scan
SELECT
    set_config('jit', 'off', true),
    set_config('enable_indexscan', 'off', true),
    CASE
        WHEN pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('64MB') THEN set_config('work_mem', '64MB', true)
    END

-- The server ends a session whose client is gone within half a minute, and its lock with it.
-- name: set_leader_keepalives
SELECT
    set_config('tcp_keepalives_idle', '10', false),
    set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false)
