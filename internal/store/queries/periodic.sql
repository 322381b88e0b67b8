-- The server's own periodic jobs and what they delete. Every delete is bounded: a transaction of SQLite's one writer stays short.

-- name: ScheduledJobs :many
SELECT * FROM scheduled_jobs ORDER BY name;

-- name: RecordScheduledJob :exec
INSERT INTO scheduled_jobs (name, last_run_at, last_ok_at, duration_ms, failures, last_error, instance_id)
VALUES (sqlc.arg(name), sqlc.arg(last_run_at), sqlc.arg(last_ok_at), sqlc.arg(duration_ms), sqlc.arg(failures), sqlc.arg(last_error), sqlc.arg(instance_id))
ON CONFLICT (name) DO UPDATE SET last_run_at = excluded.last_run_at,
  last_ok_at = CASE WHEN excluded.last_ok_at > 0 THEN excluded.last_ok_at ELSE scheduled_jobs.last_ok_at END,
  duration_ms = excluded.duration_ms,
  failures = CASE WHEN excluded.failures > 0 THEN scheduled_jobs.failures + 1 ELSE 0 END,
  last_error = excluded.last_error, instance_id = excluded.instance_id;

-- name: DeleteClusterMeta :exec
DELETE FROM cluster_meta WHERE key = $1;

-- name: ClusterMetaOrNone :many
SELECT value FROM cluster_meta WHERE key = $1;

-- name: OldRuns :many
-- Ended runs of an organisation that nothing kept refers to (STO-16): a rerun keeps its original.
SELECT r.id FROM execution_runs r
WHERE r.org_id = sqlc.arg(org_id) AND r.created_at < CAST(sqlc.arg(before) AS BIGINT)
  AND r.finished_at IS NOT NULL AND r.finished_at < CAST(sqlc.arg(before) AS BIGINT)
  AND NOT EXISTS (SELECT 1 FROM execution_runs c WHERE c.original_run_id = r.id)
  AND NOT EXISTS (SELECT 1 FROM execution_jobs j WHERE j.run_id = r.id AND j.finished_at IS NULL)
ORDER BY r.created_at, r.id
LIMIT sqlc.arg(max_rows);

-- name: CountOldRuns :one
SELECT COUNT(*) FROM execution_runs
WHERE created_at < CAST(sqlc.arg(before) AS BIGINT) AND finished_at IS NOT NULL AND finished_at < CAST(sqlc.arg(before) AS BIGINT);

-- name: DeleteOldRun :execrows
DELETE FROM execution_runs
WHERE id = sqlc.arg(id) AND finished_at IS NOT NULL AND finished_at < CAST(sqlc.arg(before) AS BIGINT);

-- name: CountOldDeliveries :one
SELECT COUNT(*) FROM deliveries WHERE received_at < CAST(sqlc.arg(before) AS BIGINT) AND finished_at IS NOT NULL AND finished_at < CAST(sqlc.arg(before) AS BIGINT);

-- name: DeleteOldDeliveries :execrows
DELETE FROM deliveries WHERE id IN (
  SELECT d.id FROM deliveries d WHERE d.org_id = sqlc.arg(org_id) AND d.received_at < CAST(sqlc.arg(before) AS BIGINT)
    AND d.finished_at IS NOT NULL AND d.finished_at < CAST(sqlc.arg(before) AS BIGINT)
  ORDER BY d.received_at, d.id LIMIT sqlc.arg(max_rows));

-- name: CountOldAccessLog :one
SELECT COUNT(*) FROM access_log WHERE at < CAST(sqlc.arg(before) AS BIGINT);

-- name: DeleteOldAccessLog :execrows
DELETE FROM access_log WHERE id IN (
  SELECT l.id FROM access_log l WHERE l.org_id = sqlc.arg(org_id) AND l.at < CAST(sqlc.arg(before) AS BIGINT)
  ORDER BY l.at, l.id LIMIT sqlc.arg(max_rows));

-- name: CountOldChecks :one
SELECT COUNT(*) FROM commit_statuses WHERE created_at < CAST(sqlc.arg(before) AS BIGINT) AND (posted_at IS NOT NULL OR gave_up_at IS NOT NULL);

-- name: DeleteOldChecks :execrows
-- Those of ended runs that have nothing left to post.
DELETE FROM commit_statuses WHERE run_id IN (
  SELECT c.run_id FROM commit_statuses c JOIN execution_runs r ON r.id = c.run_id
  WHERE c.org_id = sqlc.arg(org_id) AND c.created_at < CAST(sqlc.arg(before) AS BIGINT)
    AND r.finished_at IS NOT NULL AND r.finished_at < CAST(sqlc.arg(before) AS BIGINT) AND r.checks_done >= r.checks_changed
  ORDER BY c.created_at, c.run_id LIMIT sqlc.arg(max_rows));

-- name: DeleteGoneAgents :execrows
-- In order of their begin, which an index has; a bound or assigned job of theirs has ended long ago.
DELETE FROM agents WHERE id IN (
  SELECT g.id FROM agents g WHERE g.requested_at < CAST(sqlc.arg(before) AS BIGINT) AND g.state = 'gone'
    AND COALESCE(g.ended_at, g.state_at) < CAST(sqlc.arg(before) AS BIGINT)
    AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.agent_id = g.id AND a.ended_at IS NULL)
  ORDER BY g.requested_at, g.id LIMIT sqlc.arg(max_rows));

-- name: DeadInstances :many
-- Servers that nothing has been heard of for long, or that stopped long ago.
SELECT * FROM cluster_instances
WHERE heartbeat_at < CAST(sqlc.arg(before) AS BIGINT) AND stopped_at < CAST(sqlc.arg(before) AS BIGINT) AND (heartbeat_at > 0 OR stopped_at > 0)
ORDER BY instance_id LIMIT sqlc.arg(max_rows);

-- name: CloseAgentsOfNode :execrows
-- Of a server that does not come back; nobody else can end what it started. One that works with another server goes on.
UPDATE agents SET state = 'gone', state_at = sqlc.arg(now), ended_at = sqlc.arg(now), gone_reason = sqlc.arg(gone_reason)
WHERE agents.node_id = sqlc.arg(node_id) AND agents.state <> 'gone' AND agents.instance_id IN ('', sqlc.arg(node_id))
  AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.agent_id = agents.id AND a.ended_at IS NULL);

-- name: DeleteInstance :execrows
-- Unless it has come back, or agents of it are left.
DELETE FROM cluster_instances WHERE cluster_instances.instance_id = sqlc.arg(instance_id) AND cluster_instances.heartbeat_at = sqlc.arg(heartbeat_at)
  AND cluster_instances.started_at = sqlc.arg(started_at)
  AND NOT EXISTS (SELECT 1 FROM agents g WHERE g.node_id = cluster_instances.instance_id AND g.state <> 'gone');

-- name: DeleteScalersOfNode :execrows
DELETE FROM scalers WHERE node_id = $1;

-- name: DeleteBackoffsOfNode :execrows
DELETE FROM scaler_backoffs WHERE node_id = $1;

-- name: DeleteOldScalerFailures :execrows
DELETE FROM scaler_failures WHERE agent_id IN (SELECT f.agent_id FROM scaler_failures f WHERE f.at < CAST(sqlc.arg(before) AS BIGINT) LIMIT sqlc.arg(max_rows));

-- name: DeleteOldShapeReasonLog :execrows
DELETE FROM shape_reason_log WHERE at < CAST(sqlc.arg(before) AS BIGINT) AND shape IN (
  SELECT l.shape FROM shape_reason_log l WHERE l.at < CAST(sqlc.arg(before) AS BIGINT) ORDER BY l.at LIMIT sqlc.arg(max_rows));

-- name: DeleteIdleShapeReasons :execrows
-- Why a shape waited is of no interest once nothing of it waits.
DELETE FROM shape_reasons WHERE updated_at < CAST(sqlc.arg(before) AS BIGINT)
  AND NOT EXISTS (SELECT 1 FROM execution_jobs j WHERE j.status = 'queued' AND j.agent_id IS NULL AND j.shape = shape_reasons.shape);

-- name: CountUnroutable :one
SELECT COUNT(*) FROM execution_jobs WHERE status = 'queued' AND agent_id IS NULL AND unroutable_since IS NOT NULL;

-- name: OrphanSourceSecrets :many
-- Secrets of sources that are gone: '__source__/<id>'.
SELECT s.org_id, s.scope, s.key FROM secrets s
WHERE SUBSTR(s.scope, 1, 11) = '__source__/'
  AND NOT EXISTS (SELECT 1 FROM sources x WHERE x.deleted_at IS NULL AND s.scope = '__source__/' || x.id)
ORDER BY s.org_id, s.scope, s.key LIMIT sqlc.arg(max_rows);

-- name: DeleteOrphanSecret :execrows
DELETE FROM secrets WHERE secrets.org_id = sqlc.arg(org_id) AND secrets.scope = sqlc.arg(scope) AND secrets.key = sqlc.arg(key)
  AND NOT EXISTS (SELECT 1 FROM sources x WHERE x.deleted_at IS NULL AND secrets.scope = '__source__/' || x.id);

