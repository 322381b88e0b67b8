-- Organisations, instances and what operators do with them.

-- name: CreateOrg :execrows
INSERT INTO orgs (id, created_at, name) VALUES (sqlc.arg(id), sqlc.arg(created_at), sqlc.arg(name)) ON CONFLICT (id) DO NOTHING;

-- name: Org :one
SELECT * FROM orgs WHERE id = $1;

-- name: BeatInstanceWith :execrows
UPDATE cluster_instances SET heartbeat_at = sqlc.arg(now), settings_version = sqlc.arg(settings_version),
  registry_version = sqlc.arg(registry_version)
WHERE instance_id = sqlc.arg(instance_id);

-- name: InstanceLoad :many
-- Jobs that run or are about to on what an instance answers for: its own agents, and static ones whose session it holds. An
-- agent that is started for a job counts from its beginning.
SELECT CAST(CASE WHEN g.node_id <> '' THEN g.node_id ELSE g.instance_id END AS TEXT) AS instance_id, COUNT(*) AS jobs
FROM agents g
LEFT JOIN assignments a ON a.agent_id = g.id AND a.ended_at IS NULL
LEFT JOIN execution_jobs b ON b.id = g.bound_job_id AND b.finished_at IS NULL
WHERE g.state NOT IN ('gone', 'ending') AND (a.job_id IS NOT NULL OR b.id IS NOT NULL)
GROUP BY CASE WHEN g.node_id <> '' THEN g.node_id ELSE g.instance_id END;

-- name: InstanceAgents :many
SELECT CAST(CASE WHEN g.node_id <> '' THEN g.node_id ELSE g.instance_id END AS TEXT) AS instance_id, COUNT(*) AS agents
FROM agents g WHERE g.state <> 'gone'
GROUP BY CASE WHEN g.node_id <> '' THEN g.node_id ELSE g.instance_id END;

-- name: FilteredAccessLog :many
SELECT * FROM access_log
WHERE org_id = sqlc.arg(org_id)
  AND (at < CAST(sqlc.arg(before_at) AS BIGINT) OR (at = CAST(sqlc.arg(before_at) AS BIGINT) AND id < CAST(sqlc.arg(before_id) AS TEXT)))
  AND at >= CAST(sqlc.arg(since) AS BIGINT)
  AND at < CAST(sqlc.arg(until) AS BIGINT)
  AND (CAST(sqlc.arg(action) AS TEXT) = '' OR action = CAST(sqlc.arg(action) AS TEXT) OR action LIKE CAST(sqlc.arg(action_prefix) AS TEXT))
  AND (CAST(sqlc.arg(actor) AS TEXT) = '' OR actor = CAST(sqlc.arg(actor) AS TEXT) OR meta LIKE CAST(sqlc.arg(actor_label) AS TEXT))
  AND (CAST(sqlc.arg(outcome) AS TEXT) = '' OR outcome = CAST(sqlc.arg(outcome) AS TEXT))
  AND (CAST(sqlc.arg(target) AS TEXT) = '' OR target = CAST(sqlc.arg(target) AS TEXT))
ORDER BY at DESC, id DESC
LIMIT sqlc.arg(max_rows);
