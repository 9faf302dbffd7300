-- The partitions of `sample`.

-- The partitions that `sample` has now.
-- name: partitions
SELECT child.relname AS name
FROM pg_inherits
JOIN pg_class AS child ON child.oid = pg_inherits.inhrelid
WHERE pg_inherits.inhparent = 'sample'::regclass

-- One collector at a time changes what this key stands for; the lock ends with the transaction.
-- name: take_lock
SELECT pg_advisory_xact_lock(%(key)s)

-- Maintenance gives up rather than make ingest queue behind it.
-- name: wait_briefly_for_locks
SET LOCAL lock_timeout = '2s'

-- Taking the whole table to oneself makes everybody queue behind: it works at once or not now.
-- name: hardly_wait_for_locks
SET LOCAL lock_timeout = '100ms'

-- Whether this user may make tables and attach them: the first needs a right, the second the table itself.
-- name: may_make_partitions
SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE') AS yes
FROM pg_class
WHERE oid = 'sample'::regclass

-- A table like `sample`, to be attached once it is complete.
-- name: create_partition
CREATE TABLE {partition} (LIKE sample INCLUDING ALL)

-- Attaching an empty table does not block reading or writing the others.
-- name: attach_partition
ALTER TABLE sample ATTACH PARTITION {partition} FOR VALUES FROM ({from_day}) TO ({until_day})

-- Samples of a day that is over are no longer part of the table.
-- name: detach_partition
ALTER TABLE sample DETACH PARTITION {partition}

-- Nor of the database.
-- name: drop_partition
DROP TABLE {partition}

-- Whether rows of a day without a partition would be swallowed.
-- name: has_default_partition
SELECT count(*)
FROM pg_partitioned_table
WHERE partrelid = 'sample'::regclass AND partdefid <> 0
