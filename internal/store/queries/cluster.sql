-- name: LeaderTermForShare :one
SELECT term FROM leader_term WHERE id = 'leader' FOR SHARE;

-- name: SeedLeaderTerm :exec
INSERT INTO leader_term (id, term) VALUES ('leader', 0) ON CONFLICT (id) DO NOTHING;

-- name: SeedLeaderLease :exec
INSERT INTO leader_lease (id, holder, term, expires_at) VALUES ('leader', '', 0, 0) ON CONFLICT (id) DO NOTHING;

-- name: LeaderLease :one
SELECT * FROM leader_lease WHERE id = 'leader';

-- name: LeaderLeaseForUpdate :one
SELECT * FROM leader_lease WHERE id = 'leader' FOR UPDATE;

-- name: TakeLeaderTerm :one
UPDATE leader_term SET term = term + 1 WHERE id = 'leader' RETURNING term;

-- name: TakeLeaderLease :exec
UPDATE leader_lease SET holder = sqlc.arg(holder), term = sqlc.arg(term), expires_at = sqlc.arg(expires_at)
WHERE id = 'leader';

-- name: RenewLeaderLease :execrows
UPDATE leader_lease SET expires_at = sqlc.arg(expires_at)
WHERE id = 'leader' AND holder = sqlc.arg(holder) AND term = sqlc.arg(term);

-- name: ReleaseLeaderLease :execrows
UPDATE leader_lease SET holder = '', expires_at = 0
WHERE id = 'leader' AND holder = sqlc.arg(holder) AND term = sqlc.arg(term);

-- name: StartInstance :exec
INSERT INTO cluster_instances (instance_id, name, version, url, started_at, ready_at, heartbeat_at, draining,
  global_max_agents, global_max_cpu_milli, global_max_mem_bytes)
VALUES (sqlc.arg(instance_id), sqlc.arg(name), sqlc.arg(version), sqlc.arg(url), sqlc.arg(now), 0, sqlc.arg(now), FALSE, 0, 0, 0)
ON CONFLICT (instance_id) DO UPDATE SET name = excluded.name, version = excluded.version, url = excluded.url,
  started_at = excluded.started_at, ready_at = 0, heartbeat_at = excluded.heartbeat_at, draining = FALSE,
  stopped_at = 0;

-- name: BeatInstance :execrows
UPDATE cluster_instances SET heartbeat_at = sqlc.arg(now) WHERE instance_id = sqlc.arg(instance_id);

-- name: SetInstanceReady :execrows
UPDATE cluster_instances SET ready_at = sqlc.arg(now), heartbeat_at = sqlc.arg(now) WHERE instance_id = sqlc.arg(instance_id);

-- name: SetInstanceDraining :execrows
UPDATE cluster_instances SET draining = sqlc.arg(draining) WHERE instance_id = sqlc.arg(instance_id);

-- name: SetInstanceCaps :execrows
UPDATE cluster_instances SET global_max_agents = sqlc.arg(max_agents), global_max_cpu_milli = sqlc.arg(max_cpu_milli),
  global_max_mem_bytes = sqlc.arg(max_mem_bytes)
WHERE instance_id = sqlc.arg(instance_id);

-- name: StopInstance :execrows
UPDATE cluster_instances SET heartbeat_at = 0, ready_at = 0, stopped_at = sqlc.arg(now) WHERE instance_id = sqlc.arg(instance_id);

-- name: ClusterInstance :one
SELECT * FROM cluster_instances WHERE instance_id = $1;

-- name: ClusterInstances :many
SELECT * FROM cluster_instances ORDER BY instance_id;

-- name: InsertClusterMeta :exec
INSERT INTO cluster_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING;

-- name: SetClusterMeta :exec
INSERT INTO cluster_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: ClusterMeta :one
SELECT value FROM cluster_meta WHERE key = $1;
