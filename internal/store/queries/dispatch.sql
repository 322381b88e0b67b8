-- The leader's loop around placement (internal/dispatch). A waiting job is one with status queued and no agent; the index
-- execution_jobs_queue covers what a tick reads of them.

-- name: DispatchNodes :many
SELECT instance_id, name, ready_at, heartbeat_at, draining, global_max_agents, global_max_cpu_milli, global_max_mem_bytes
FROM cluster_instances ORDER BY instance_id;

-- name: DispatchScalers :many
SELECT s.node_id, s.name, s.type, s.spec, s.max_agents, s.cap_cpu_milli, s.cap_mem_bytes, s.retiring, s.ready, s.not_ready, s.updated_at,
  b.failures, b.until_at, b.last_error
FROM scalers s LEFT JOIN scaler_backoffs b ON b.node_id = s.node_id AND b.scaler = s.name
ORDER BY s.node_id, s.position, s.name;

-- name: DispatchAgents :many
-- The order is computed so that no index has it: that of the live agents is the one to use, however many there were.
SELECT g.id, g.org_id, g.node_id, g.scaler, g.type, g.state, g.labels, g.mandatory_labels, g.cpu_milli, g.mem_bytes,
  g.cpu_limit_milli, g.mem_limit_bytes, g.bound_job_id, g.instance_id, g.session_id, g.link_lost_at, g.draining, g.rest_until,
  g.label_set, g.registered_at, g.image,
  a.job_id, b.finished_at AS bound_finished_at, b.agent_id AS bound_agent_id, b.id AS bound_exists
FROM agents g
LEFT JOIN assignments a ON a.agent_id = g.id AND a.ended_at IS NULL
LEFT JOIN execution_jobs b ON b.id = g.bound_job_id
WHERE g.state <> 'gone' ORDER BY g.id || '';

-- name: DispatchShapes :many
SELECT shape, COUNT(*) AS total, COUNT(unroutable_since) AS marked,
  CAST(MIN(queued_at) AS BIGINT) AS oldest,
  CAST(COALESCE(MIN(unroutable_since), 0) AS BIGINT) AS unroutable_since,
  CAST(COALESCE(MIN(queue_deadline_at), 0) AS BIGINT) AS deadline_at
FROM execution_jobs WHERE status = 'queued' AND agent_id IS NULL
GROUP BY shape ORDER BY shape;

-- name: DispatchShapeKeys :many
WITH RECURSIVE s(shape) AS (
  SELECT (SELECT MIN(j.shape) FROM execution_jobs j WHERE j.status = 'queued' AND j.agent_id IS NULL)
  UNION ALL
  SELECT (SELECT MIN(j.shape) FROM execution_jobs j WHERE j.status = 'queued' AND j.agent_id IS NULL AND j.shape > s.shape)
  FROM s WHERE s.shape IS NOT NULL
)
SELECT CAST(s.shape AS TEXT) AS shape FROM s WHERE s.shape IS NOT NULL;

-- name: DispatchWindow :many
-- The cast keeps SQLite from preparing the statement anew at every use, as it does for a bare parameter of LIMIT.
SELECT id, run_id, queued_at FROM execution_jobs
WHERE status = 'queued' AND agent_id IS NULL AND shape = sqlc.arg(shape) ORDER BY queued_at, id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);

-- name: DispatchShapeSample :one
SELECT org_id, labels, exclude_labels, cpu_milli, mem_bytes, cpu_limit_milli, mem_limit_bytes, image FROM execution_jobs
WHERE status = 'queued' AND agent_id IS NULL AND shape = $1 LIMIT 1;

-- name: DispatchHolder :one
SELECT r.repo, r.number FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id WHERE j.id = $1;

-- name: DispatchAssign :one
UPDATE execution_jobs SET agent_id = sqlc.arg(agent_id), attempt = attempt + 1, report_seq = 0, unroutable_since = NULL
WHERE execution_jobs.id = sqlc.arg(job_id) AND execution_jobs.status = 'queued' AND execution_jobs.agent_id IS NULL
  AND EXISTS (SELECT 1 FROM execution_runs r WHERE r.id = execution_jobs.run_id AND r.status IN ('pending', 'running'))
  AND EXISTS (SELECT 1 FROM agents g WHERE g.id = sqlc.arg(agent_id) AND g.state = 'online' AND g.draining = FALSE
    AND g.session_id <> '' AND g.link_lost_at IS NULL
    AND (g.bound_job_id = execution_jobs.id OR NOT EXISTS (SELECT 1 FROM cluster_instances i WHERE i.draining = TRUE
      AND i.instance_id = CASE WHEN g.node_id <> '' THEN g.node_id ELSE g.instance_id END)))
  AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.agent_id = sqlc.arg(agent_id) AND a.ended_at IS NULL)
RETURNING attempt;

-- name: DispatchInsertAssignment :exec
INSERT INTO assignments (job_id, attempt, run_id, agent_id, state, created_at, ack_by, sent_at, acked_at, ended_at, end_reason)
VALUES ($1, $2, $3, $4, 'assigned', $5, $6, NULL, NULL, NULL, '');

-- name: DispatchBind :execrows
UPDATE agents SET bound_job_id = sqlc.arg(job_id)
WHERE agents.id = sqlc.arg(agent_id) AND agents.type <> 'static' AND (agents.bound_job_id IS NULL OR agents.bound_job_id <> sqlc.arg(job_id))
  AND NOT EXISTS (SELECT 1 FROM agents o WHERE o.bound_job_id = sqlc.arg(job_id) AND o.state NOT IN ('gone', 'ending'));

-- name: DispatchWantsAgent :one
-- Whether a job still waits without an agent, and the scaler may still start one: since the decision its node may have been told to
-- drain (QUE-18), and a launch of it may have failed (MG-27).
SELECT COUNT(*) FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id
WHERE j.id = sqlc.arg(job_id) AND j.status = 'queued' AND j.agent_id IS NULL AND r.status IN ('pending', 'running')
  AND NOT EXISTS (SELECT 1 FROM agents g WHERE g.bound_job_id = j.id AND g.state NOT IN ('gone', 'ending'))
  AND NOT EXISTS (SELECT 1 FROM cluster_instances i WHERE i.instance_id = sqlc.arg(node_id) AND i.draining = TRUE)
  AND NOT EXISTS (SELECT 1 FROM scaler_backoffs b WHERE b.node_id = sqlc.arg(node_id) AND b.scaler = sqlc.arg(scaler) AND b.until_at > sqlc.arg(now));

-- name: DispatchMayWarm :one
-- Whether a scaler may start an agent in advance: 1, or 0 when its node drains or it backs off since the decision.
SELECT COUNT(*) FROM cluster_instances i WHERE i.instance_id = sqlc.arg(node_id) AND i.draining = FALSE
  AND NOT EXISTS (SELECT 1 FROM scaler_backoffs b WHERE b.node_id = sqlc.arg(node_id) AND b.scaler = sqlc.arg(scaler) AND b.until_at > sqlc.arg(now));

-- name: DispatchHasRoom :one
-- Whether one more agent of a scaler stays within its cap and its node's: 1, or 0 when a reload has lowered one since the decision.
SELECT COUNT(*) FROM scalers s JOIN cluster_instances i ON i.instance_id = s.node_id
WHERE s.node_id = sqlc.arg(node_id) AND s.name = sqlc.arg(scaler)
  AND (SELECT COUNT(*) FROM agents g WHERE g.node_id = s.node_id AND g.scaler = s.name AND g.state <> 'gone') < s.max_agents
  AND (SELECT COUNT(*) FROM agents g WHERE g.node_id = s.node_id AND g.state <> 'gone') < i.global_max_agents;

-- name: DispatchLaunch :exec
INSERT INTO agents (
  id, org_id, node_id, scaler, type, state, labels, mandatory_labels, label_set, cpu_milli, mem_bytes, cpu_limit_milli,
  mem_limit_bytes, bound_job_id, token_hash, launch, requested_at, state_at, register_by, registered_at, instance_id, session_id,
  link_lost_at, last_seen_at, ended_at, gone_reason, error, delete_attempts, host, platform, arch, version, jobs_done, draining, image
) VALUES (
  sqlc.arg(id), sqlc.arg(org_id), sqlc.arg(node_id), sqlc.arg(scaler), sqlc.arg(type), 'requested', sqlc.arg(labels),
  sqlc.arg(mandatory_labels), sqlc.arg(label_set), sqlc.arg(cpu_milli), sqlc.arg(mem_bytes), sqlc.arg(cpu_limit_milli),
  sqlc.arg(mem_limit_bytes), sqlc.narg(bound_job_id), NULL, '', sqlc.arg(now), sqlc.arg(now), sqlc.arg(register_by), NULL, '', '',
  NULL, NULL, NULL, '', '', 0, '', '', '', '', 0, FALSE, sqlc.arg(image)
);

-- name: DispatchWithdraw :execrows
UPDATE agents SET state = 'ending', state_at = sqlc.arg(now), gone_reason = sqlc.arg(reason)
WHERE agents.id = sqlc.arg(id) AND agents.type <> 'static' AND agents.state IN ('requested', 'starting', 'booting', 'online')
  AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.agent_id = sqlc.arg(id) AND a.ended_at IS NULL);

-- name: DispatchEndAgent :one
UPDATE agents SET
  state = CASE WHEN type = 'static' THEN 'gone' ELSE 'ending' END,
  ended_at = CASE WHEN type = 'static' THEN CAST(sqlc.arg(now) AS BIGINT) ELSE ended_at END,
  state_at = sqlc.arg(now), gone_reason = sqlc.arg(reason)
WHERE id = sqlc.arg(id) AND state NOT IN ('ending', 'gone')
RETURNING node_id;

-- name: DispatchMarkUnroutable :execrows
UPDATE execution_jobs SET unroutable_since = $2 WHERE status = 'queued' AND agent_id IS NULL AND shape = $1 AND unroutable_since IS NULL;

-- name: DispatchClearUnroutable :execrows
UPDATE execution_jobs SET unroutable_since = NULL WHERE status = 'queued' AND agent_id IS NULL AND shape = $1 AND unroutable_since IS NOT NULL;

-- name: DispatchDueWaiting :many
SELECT id, labels, exclude_labels, provisioning_error, unroutable_since, queue_deadline_at, queued_at, shape FROM execution_jobs
WHERE status = 'queued' AND agent_id IS NULL AND shape = sqlc.arg(shape)
  AND (queue_deadline_at <= CAST(sqlc.arg(now) AS BIGINT) OR unroutable_since <= CAST(sqlc.arg(unroutable_before) AS BIGINT))
ORDER BY queued_at, id LIMIT 200;

-- name: DispatchReasons :many
SELECT shape, reasons FROM shape_reasons;

-- name: DispatchPutReasons :exec
INSERT INTO shape_reasons (shape, reasons, updated_at) VALUES ($1, $2, $3)
ON CONFLICT (shape) DO UPDATE SET reasons = excluded.reasons, updated_at = excluded.updated_at;

-- name: DispatchDropReasons :exec
DELETE FROM shape_reasons WHERE shape = $1;

-- name: DispatchDueAssignments :many
SELECT a.job_id, a.attempt, a.run_id, a.agent_id, a.state, a.ack_by,
  g.state AS agent_state, g.type AS agent_type, g.node_id, g.link_lost_at, g.gone_reason, g.error AS agent_error,
  j.status AS job_status, j.started_at, j.heartbeat_at,
  n.name AS instance_name, n.heartbeat_at AS instance_heartbeat
FROM assignments a JOIN agents g ON g.id = a.agent_id JOIN execution_jobs j ON j.id = a.job_id
LEFT JOIN cluster_instances n ON n.instance_id = CASE WHEN g.instance_id = '' THEN g.lost_instance ELSE g.instance_id END
WHERE a.ended_at IS NULL AND (
  (a.state = 'assigned' AND a.ack_by <= CAST(sqlc.arg(now) AS BIGINT))
  OR g.state IN ('ending', 'gone')
  OR g.link_lost_at <= CAST(sqlc.arg(lost_before) AS BIGINT)
  OR (j.status IN ('running', 'recovering', 'cancelling') AND j.heartbeat_at <= CAST(sqlc.arg(beat_before) AS BIGINT)))
ORDER BY a.job_id LIMIT 500;
