-- Agent sessions (internal/fleet): registration, delivery of assignments, reports' ownership, lost links.

-- name: FleetToken :one
SELECT id, org_id, type, agent_id, labels, mandatory_labels, expires_at, revoked_at FROM agent_tokens WHERE token_hash = $1;

-- name: FleetTouchToken :exec
UPDATE agent_tokens SET last_seen_at = $2 WHERE id = $1;

-- name: FleetAgent :one
SELECT id, org_id, node_id, scaler, type, state, labels, bound_job_id, token_hash, registered_at, instance_id, session_id, gone_reason,
  jobs_done, draining
FROM agents WHERE id = $1 FOR UPDATE;

-- name: FleetAdmitAgent :execrows
UPDATE agents SET
  state_at = CASE WHEN state = sqlc.arg(state) THEN state_at ELSE CAST(sqlc.arg(now) AS BIGINT) END,
  registered_at = CASE WHEN registered_at IS NULL OR state = 'gone' THEN CAST(sqlc.arg(now) AS BIGINT) ELSE registered_at END,
  state = sqlc.arg(state), labels = sqlc.arg(labels), mandatory_labels = sqlc.arg(mandatory_labels), token_hash = sqlc.arg(token_hash),
  instance_id = sqlc.arg(instance_id), session_id = sqlc.arg(session_id), link_lost_at = NULL, lost_instance = '', last_seen_at = sqlc.arg(now),
  draining = CASE WHEN state = 'gone' THEN FALSE ELSE draining END, ended_at = NULL, gone_reason = '', error = '', host = sqlc.arg(host), platform = sqlc.arg(platform), arch = sqlc.arg(arch), version = sqlc.arg(version)
WHERE id = sqlc.arg(id) AND state = sqlc.arg(was);

-- name: FleetInsertStatic :execrows
INSERT INTO agents (
  id, org_id, node_id, scaler, type, state, labels, mandatory_labels, label_set, cpu_milli, mem_bytes, cpu_limit_milli,
  mem_limit_bytes, bound_job_id, token_hash, launch, requested_at, state_at, register_by, registered_at, instance_id, session_id,
  link_lost_at, last_seen_at, ended_at, gone_reason, error, delete_attempts, host, platform, arch, version, jobs_done, draining
) VALUES (
  sqlc.arg(id), sqlc.arg(org_id), '', '', 'static', 'gone', '[]', '[]', '', 0, 0, 0,
  0, NULL, NULL, '{}', sqlc.arg(now), sqlc.arg(now), NULL, NULL, '', '',
  NULL, NULL, NULL, '', '', 0, '', '', '', '', 0, FALSE
) ON CONFLICT (id) DO NOTHING;

-- name: FleetClearBackoff :execrows
DELETE FROM scaler_backoffs WHERE node_id = $1 AND scaler = $2;

-- name: FleetOpenAssignment :one
SELECT a.job_id, a.attempt, a.run_id, a.state, j.status, j.started_at
FROM assignments a JOIN execution_jobs j ON j.id = a.job_id
WHERE a.agent_id = $1 AND a.ended_at IS NULL;

-- name: FleetAssignment :one
SELECT agent_id, run_id, state, ended_at, end_reason FROM assignments WHERE job_id = $1 AND attempt = $2;

-- name: FleetUnsend :execrows
-- The millisecond makes a delivery on the connection before this one lose (FleetMarkSent).
UPDATE assignments SET sent_at = NULL, ack_by = ack_by + 1 WHERE job_id = $1 AND attempt = $2 AND state = 'assigned' AND ended_at IS NULL;

-- name: FleetUnsent :many
SELECT a.job_id, a.attempt, a.run_id, a.agent_id, a.ack_by, j.org_id, j.lock_job
FROM assignments a JOIN agents g ON g.id = a.agent_id JOIN execution_jobs j ON j.id = a.job_id
WHERE a.ended_at IS NULL AND a.state = 'assigned' AND a.sent_at IS NULL AND g.instance_id = $1
ORDER BY a.created_at LIMIT 500;

-- name: FleetMarkSent :execrows
-- Only as it was read: an agent that has come back on another connection meanwhile (FleetUnsend) is to be sent it again there.
UPDATE assignments SET sent_at = sqlc.arg(sent_at), ack_by = sqlc.arg(ack_by)
WHERE job_id = sqlc.arg(job_id) AND attempt = sqlc.arg(attempt) AND state = 'assigned' AND ended_at IS NULL AND ack_by = sqlc.arg(was_ack_by);

-- name: FleetAck :execrows
UPDATE assignments SET state = 'acked', acked_at = $4
WHERE job_id = $1 AND attempt = $2 AND agent_id = $3 AND state = 'assigned' AND ended_at IS NULL;

-- name: FleetCancelling :many
SELECT j.id, j.run_id, j.cancel_reason, j.cancel_force, a.agent_id, a.attempt
FROM execution_jobs j JOIN assignments a ON a.job_id = j.id AND a.ended_at IS NULL
WHERE j.status = 'cancelling' AND j.finished_at IS NULL;

-- name: FleetEndedAgents :many
SELECT id, session_id, state, gone_reason FROM agents
WHERE instance_id = $1 AND instance_id <> '' AND state IN ('ending', 'gone');

-- name: FleetDrainingAgents :many
SELECT id FROM agents WHERE instance_id = $1 AND instance_id <> '' AND state = 'online' AND draining = TRUE;

-- name: FleetLoseLink :execrows
UPDATE agents SET lost_instance = instance_id, instance_id = '', session_id = '', link_lost_at = $3, last_seen_at = $3 WHERE id = $1 AND session_id = $2;

-- name: FleetEndAgent :execrows
UPDATE agents SET state = sqlc.arg(state), state_at = sqlc.arg(now), gone_reason = sqlc.arg(reason),
  ended_at = CASE WHEN CAST(sqlc.arg(state) AS TEXT) = 'gone' THEN CAST(sqlc.arg(now) AS BIGINT) ELSE ended_at END
WHERE id = sqlc.arg(id) AND state IN ('online', 'draining');

-- name: FleetAbsent :many
-- Here and below the index is that of the live agents, as in DispatchAgents.
SELECT g.id, g.node_id, g.type, g.jobs_done FROM agents g
WHERE g.state <> 'gone' AND g.state IN ('online', 'draining') AND g.instance_id = '' AND g.link_lost_at <= CAST(sqlc.arg(cutoff) AS BIGINT)
  AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.agent_id = g.id AND a.ended_at IS NULL)
ORDER BY g.id || '' LIMIT 500;

-- name: FleetLingering :many
SELECT g.id, g.node_id FROM agents g
WHERE g.state <> 'gone' AND g.state = 'draining' AND g.type <> 'static' AND g.jobs_done > 0 AND g.state_at <= CAST(sqlc.arg(cutoff) AS BIGINT)
  AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.agent_id = g.id AND a.ended_at IS NULL)
ORDER BY g.id || '' LIMIT 500;

-- name: FleetOrphans :many
-- Of servers that are dead, and with past = TRUE of earlier processes of this one; what this process has it knows better.
SELECT g.id, g.session_id FROM agents g
WHERE g.state <> 'gone' AND g.instance_id <> '' AND g.state IN ('online', 'draining') AND (g.instance_id = CAST(sqlc.arg(self) AS TEXT) AND CAST(sqlc.arg(past) AS BOOLEAN)
  OR g.instance_id <> CAST(sqlc.arg(self) AS TEXT) AND NOT EXISTS (
    SELECT 1 FROM cluster_instances i WHERE i.instance_id = g.instance_id AND i.heartbeat_at > CAST(sqlc.arg(alive_since) AS BIGINT)))
ORDER BY g.id || '' LIMIT 2000;

-- name: FleetLinks :many
SELECT id, session_id FROM agents WHERE instance_id = $1 AND instance_id <> '';

-- name: FleetBeat :execrows
UPDATE execution_jobs SET heartbeat_at = sqlc.arg(now)
WHERE id = sqlc.arg(id) AND attempt = sqlc.arg(attempt) AND agent_id = CAST(sqlc.arg(agent) AS TEXT) AND status IN ('running', 'cancelling', 'recovering');

-- name: FleetCaller :one
SELECT g.id, g.org_id, g.state FROM agents g JOIN agent_tokens t ON t.token_hash = g.token_hash
WHERE g.id = $1 AND g.token_hash = $2 AND t.revoked_at IS NULL;

-- name: FleetJobSpec :one
SELECT j.id, j.run_id, j.org_id, j.attempt, j.lock_job, j.timeout_ms, r.workflow, r.lock_entry, r.routing_key, r.repo, r.ref, r.sha,
  r.trust_tier, a.agent_id
FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id JOIN assignments a ON a.job_id = j.id AND a.attempt = j.attempt
WHERE j.id = $1 AND a.ended_at IS NULL;

-- name: FleetQueueDepth :many
SELECT status, COUNT(*) AS jobs FROM execution_jobs WHERE finished_at IS NULL GROUP BY status;

-- name: FleetRevoked :many
SELECT g.id, g.node_id, g.type, g.session_id FROM agents g JOIN agent_tokens t ON t.token_hash = g.token_hash
WHERE g.instance_id = $1 AND g.instance_id <> '' AND g.state IN ('online', 'draining') AND t.revoked_at IS NOT NULL;
