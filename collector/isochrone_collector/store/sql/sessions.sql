-- Settings of sessions and transactions.

-- Settings of connections for queries: a timeout for each statement, no compilation, which takes longer than it saves,
-- and enough memory to sort without files, which halves the time.
-- name: limit_read_queries
SELECT
    set_config('statement_timeout', %(timeout)s, false),
    set_config('jit', 'off', false),
    CASE
        WHEN pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('64MB') THEN set_config('work_mem', '64MB', false)
    END

-- An acknowledged batch is on disk, even if the server's default is another one.
-- name: make_commits_durable
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'

-- On a Citus cluster, one connection to each worker: by default a push opens one for each shard, and commits on all.
-- Connecting to a worker that hangs takes five seconds, not thirty.
-- name: write_over_one_connection
SELECT
    set_config('citus.max_adaptive_executor_pool_size', '1', false),
    set_config('citus.node_connection_timeout', '5s', false)
FROM pg_extension
WHERE extname = 'citus'

-- On a Citus cluster, connect to the workers for each query, because only connecting has a limit: a query over an
-- earlier connection to a worker that hangs ends neither by itself nor when it is cancelled.
-- name: read_over_new_connections
SELECT
    set_config('citus.max_cached_conns_per_worker', '0', false),
    set_config('citus.node_connection_timeout', '5s', false)
FROM pg_extension
WHERE extname = 'citus'

-- Jobs use the same connections as pushes: a statement of theirs takes one core. By default it takes three, and pushes
-- wait for all of them on a small machine.
-- name: read_on_one_core
SELECT set_config('max_parallel_workers_per_gather', '0', false)

-- Compiling a statement with many aggregates would take longer than running most of them.
-- name: disable_jit
SELECT set_config('jit', 'off', true)

-- Settings of a transaction that reads many rounds: no compilation, enough memory to sort without files, and pages read
-- in their own order and not by target, because each target has rows in all of them. For the current day the server
-- expects few rows, and would read each page once per target.
-- name: prepare_round_scan
SELECT
    set_config('jit', 'off', true),
    set_config('enable_indexscan', 'off', true),
    CASE
        WHEN pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('64MB') THEN set_config('work_mem', '64MB', true)
    END

-- The server ends the session of a lost client within half a minute, with its locks. Only Linux watches for closed
-- connections while a statement runs.
-- name: end_lost_clients
SELECT
    set_config('tcp_keepalives_idle', '5', false),
    set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false),
    set_config('tcp_user_timeout', '20000', false),
    CASE WHEN version() LIKE '%linux%' THEN set_config('client_connection_check_interval', '5000', false) END

-- A transaction in which nothing happens belongs to a lost client; its rows would block the repetition of its push.
-- name: end_idle_transactions
SELECT set_config('idle_in_transaction_session_timeout', '20s', false)

-- The statements of a transaction see one state of the database.
-- name: see_one_state
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ
