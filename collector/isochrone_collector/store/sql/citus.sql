-- Distribution of tables over the nodes of a Citus cluster; see docs/scale.md.

-- Whether the server has Citus: its functions exist once the extension was created in this database.
-- name: citus_is_there
SELECT to_regproc('create_distributed_table') IS NOT NULL AS there

-- Which of the tables there are, and whether each is distributed or copied to every node.
-- name: citus_tables
SELECT name, logicalrelid IS NOT NULL AS is_distributed
FROM unnest(%(names)s::text[]) AS name
LEFT JOIN pg_dist_partition ON logicalrelid = to_regclass(name)
WHERE to_regclass(name) IS NOT NULL

-- To distribute all tables in one transaction, its steps run one after the other, on one connection per node.
-- name: citus_one_by_one
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', true)

-- Distribute a table; rows with the same value of the column stay together, and with those of another table.
-- name: citus_distribute
SELECT create_distributed_table(%(table)s::regclass, %(column)s, colocate_with => %(beside)s)

-- Keep a whole copy of a table on every node.
-- name: citus_copy_everywhere
SELECT create_reference_table(%(table)s::regclass)

-- The number of workers that can hold rows.
-- name: citus_workers
SELECT count(*) AS workers
FROM pg_dist_node
WHERE noderole = 'primary' AND isactive AND shouldhaveshards AND groupid <> 0

-- Whether rows of a distributed table are still on the coordinator, in the table or in its partitions.
-- name: citus_has_local_rows
SELECT pg_relation_size(%(table)s::regclass) > 0 OR bool_or(pg_relation_size(relid) > 0) IS TRUE AS yes
FROM pg_partition_tree(%(table)s::regclass)

-- Remove the rows of a distributed table that are still on the coordinator.
-- name: citus_remove_local_rows
SELECT truncate_local_data_after_distributing_table(%(table)s::regclass)

-- How long to wait for a worker that does not answer.
-- name: citus_ask_quickly
SELECT set_config('citus.node_connection_timeout', '3s', false)

-- The settings of each worker for sessions of this user, because settings that a session makes for itself do not reach
-- the workers; null for a worker that does not answer.
-- name: citus_worker_settings
SELECT nodename || ':' || nodeport AS node, CASE WHEN success THEN result::json END AS settings
FROM run_command_on_workers(
    'SELECT json_object_agg(name, setting) FROM pg_settings
     WHERE name IN (''fsync'', ''full_page_writes'', ''synchronous_commit'', ''jit'', ''work_mem'')'
)
ORDER BY node
