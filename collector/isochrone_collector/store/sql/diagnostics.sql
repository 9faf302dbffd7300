-- Facts about the server for `doctor`.

-- The settings on which depends whether an acknowledged batch survives a power failure, and how long the slowest
-- replies to pushes take, with their units.
-- name: server_settings
SELECT name, current_setting(name)
FROM pg_settings
WHERE name IN (
    'fsync', 'full_page_writes', 'synchronous_commit',
    'wal_compression', 'max_wal_size', 'backend_flush_after', 'autovacuum_vacuum_cost_delay',
    'citus.recover_2pc_interval'
)

-- The database's wall clock, in microseconds since the Unix epoch.
-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at_us

-- Whether a revision of the schema was ever applied.
-- name: has_revision
SELECT to_regclass('alembic_version') IS NOT NULL

-- The applied revision.
-- name: revision
SELECT version_num
FROM alembic_version
