-- Distribution of tables over the nodes of a Citus cluster; see docs/scale.md.

-- Whether the server has Citus: its functions exist once the extension was created in this database.
-- name: citus_is_there
SELECT to_regproc('create_distributed_table') IS NOT NULL AS there

-- The tables that are already distributed or copied to every node.
-- name: citus_tables
SELECT logicalrelid::regclass::text AS name
FROM pg_dist_partition

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

-- Remove the rows of a distributed table that are still on the coordinator.
-- name: citus_remove_local_rows
SELECT truncate_local_data_after_distributing_table(%(table)s::regclass)

-- The nodes that another node of the cluster cannot reach. Citus opens a connection from every node to every node.
-- name: citus_lost_nodes
SELECT DISTINCT to_nodename || ':' || to_nodeport AS node
FROM citus_check_cluster_node_health()
WHERE result IS FALSE
ORDER BY node
