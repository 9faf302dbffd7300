-- The partitions of `sample`.

-- The partitions that `sample` has now.
-- name: partitions
SELECT child.relname AS name
FROM pg_inherits
JOIN pg_class AS child ON child.oid = pg_inherits.inhrelid
WHERE pg_inherits.inhparent = 'sample'::regclass

-- Take the lock of a key, so that one collector at a time does its work; the lock ends with the transaction.
-- name: take_lock
SELECT pg_advisory_xact_lock(%(key)s)

-- On a Citus cluster, `SET LOCAL` also holds on the workers, where most locks are.
-- name: set_on_workers_too
SELECT set_config('citus.propagate_set_commands', 'local', true)
FROM pg_extension
WHERE extname = 'citus'

-- Maintenance gives up instead of making ingest wait behind it.
-- name: set_short_lock_timeout
SET LOCAL lock_timeout = '2s'

-- While an exclusive lock of the whole table waits, every other statement waits behind it: it must succeed almost at
-- once.
-- name: set_minimal_lock_timeout
SET LOCAL lock_timeout = '100ms'

-- Whether this user may create partitions and attach them: that takes a privilege, and ownership of the table.
-- name: may_make_partitions
SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE') AS yes
FROM pg_class
WHERE oid = 'sample'::regclass

-- Create a table like `sample`, to be attached once it is complete.
-- name: create_partition
CREATE TABLE {partition} (LIKE sample INCLUDING ALL)

-- Attach an empty table; this does not block reads and writes of the other partitions.
-- name: attach_partition
ALTER TABLE sample ATTACH PARTITION {partition} FOR VALUES FROM ({from_day}) TO ({until_day})

-- Detach the partition of a retired day.
-- name: detach_partition
ALTER TABLE sample DETACH PARTITION {partition}

-- Drop the detached partition.
-- name: drop_partition
DROP TABLE {partition}

-- Whether there is a default partition, which would accept rows of days without a partition.
-- name: has_default_partition
SELECT count(*)
FROM pg_partitioned_table
WHERE partrelid = 'sample'::regclass AND partdefid <> 0
