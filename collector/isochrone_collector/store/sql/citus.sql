-- How tables are spread over the nodes of a Citus cluster; see docs/scale.md.

-- Whether this server can: the extension's functions are there once it was created in this database.
-- name: citus_is_there
SELECT to_regproc('create_distributed_table') IS NOT NULL AS there

-- The tables that are spread or copied to every node already.
-- name: citus_tables
SELECT logicalrelid::regclass::text AS name
FROM pg_dist_partition

-- All tables in one transaction takes that its steps go one after the other, on one connection per node.
-- name: citus_one_by_one
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', true)

-- Spread a table over the nodes; rows of one value of the column stay together, and with those of another table.
-- name: citus_distribute
SELECT create_distributed_table(%(table)s::regclass, %(column)s, colocate_with => %(beside)s)

-- Keep a whole copy of a table on every node.
-- name: citus_copy_everywhere
SELECT create_reference_table(%(table)s::regclass)
