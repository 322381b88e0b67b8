-- The node's loop (internal/scaler) over the ledger of agents. Names start with Node.

-- name: NodeAgents :many
SELECT id, org_id, scaler, type, state, labels, mandatory_labels, label_set, cpu_milli, mem_bytes, cpu_limit_milli, mem_limit_bytes,
  bound_job_id, launch, requested_at, state_at, register_by, registered_at, session_id, gone_reason, delete_attempts, jobs_done, image
FROM agents WHERE node_id = sqlc.arg(node_id) AND state <> 'gone' ORDER BY requested_at, id;

-- name: NodeStartAgent :execrows
UPDATE agents SET state = 'starting', token_hash = sqlc.arg(token_hash), launch = sqlc.arg(launch), state_at = sqlc.arg(now), detail = '',
  register_by = sqlc.arg(register_by)
WHERE id = sqlc.arg(id) AND state IN ('requested', 'starting') AND registered_at IS NULL;

-- name: NodeInsertAgentToken :exec
INSERT INTO agent_tokens (id, org_id, token_hash, prefix, type, agent_id, labels, mandatory_labels, created_by, created_at, expires_at)
VALUES (sqlc.arg(id), sqlc.arg(org_id), sqlc.arg(token_hash), sqlc.arg(prefix), 'ephemeral', sqlc.arg(agent_id), sqlc.arg(labels),
  sqlc.arg(mandatory_labels), sqlc.arg(created_by), sqlc.arg(now), sqlc.arg(expires_at));

-- name: NodeNoteJob :execrows
-- A note to the last job of an agent.
INSERT INTO run_notes (run_id, id, at, job_id, kind, actor, detail)
SELECT a.run_id, CAST(sqlc.arg(id) AS TEXT), CAST(sqlc.arg(at) AS BIGINT), a.job_id, CAST(sqlc.arg(kind) AS TEXT), a.agent_id, CAST(sqlc.arg(detail) AS TEXT)
FROM assignments a WHERE a.agent_id = sqlc.arg(agent_id) ORDER BY a.created_at DESC, a.job_id LIMIT 1;

-- name: NodeDeleteAgentTokens :exec
DELETE FROM agent_tokens WHERE agent_id = sqlc.arg(agent_id) AND type = 'ephemeral';

-- name: NodeAgentDetail :execrows
UPDATE agents SET detail = sqlc.arg(detail) WHERE id = sqlc.arg(id) AND state = 'starting' AND detail <> sqlc.arg(detail);

-- name: NodeRunOfJob :one
SELECT run_id FROM execution_jobs WHERE id = $1;

-- name: NodeAgentCreated :execrows
UPDATE agents SET launch = sqlc.arg(launch), detail = '',
  state = CASE WHEN state = 'starting' THEN 'booting' ELSE state END,
  state_at = CASE WHEN state = 'starting' THEN CAST(sqlc.arg(now) AS BIGINT) ELSE state_at END
WHERE id = sqlc.arg(id) AND state NOT IN ('requested', 'ending', 'gone');

-- name: NodeEndAgent :execrows
UPDATE agents SET state = 'ending', state_at = sqlc.arg(now), gone_reason = sqlc.arg(gone_reason), error = sqlc.arg(error)
WHERE id = sqlc.arg(id) AND state = sqlc.arg(state);

-- name: NodeEndAllAgents :execrows
UPDATE agents SET state = 'ending', state_at = sqlc.arg(now), gone_reason = sqlc.arg(gone_reason)
WHERE node_id = sqlc.arg(node_id) AND state NOT IN ('ending', 'gone');

-- name: NodeAgentGone :execrows
UPDATE agents SET state = 'gone', state_at = sqlc.arg(now), ended_at = sqlc.arg(now), instance_id = '', session_id = ''
WHERE id = sqlc.arg(id) AND state = 'ending';

-- name: NodeCloseAgent :execrows
UPDATE agents SET state = 'gone', state_at = sqlc.arg(now), ended_at = sqlc.arg(now), error = sqlc.arg(error),
  gone_reason = CASE WHEN gone_reason = '' THEN CAST(sqlc.arg(gone_reason) AS TEXT) ELSE gone_reason END
WHERE id = sqlc.arg(id) AND state = sqlc.arg(state);

-- name: NodeDeleteFailed :execrows
UPDATE agents SET delete_attempts = delete_attempts + 1, error = sqlc.arg(error)
WHERE id = sqlc.arg(id) AND state = 'ending';

-- name: NodeInsertFailure :execrows
INSERT INTO scaler_failures (agent_id, node_id, scaler, at, job_id, error, tail)
VALUES (sqlc.arg(agent_id), sqlc.arg(node_id), sqlc.arg(scaler), sqlc.arg(at), sqlc.narg(job_id), sqlc.arg(error), sqlc.arg(tail))
ON CONFLICT (agent_id) DO NOTHING;

-- name: NodePruneFailures :exec
DELETE FROM scaler_failures AS d WHERE d.node_id = sqlc.arg(node_id) AND d.at < (
  SELECT MIN(r.at) FROM (
    SELECT f.at FROM scaler_failures f WHERE f.node_id = sqlc.arg(node_id) ORDER BY f.at DESC LIMIT 256) r);

-- name: NodeSetBackoff :exec
INSERT INTO scaler_backoffs (node_id, scaler, failures, until_at, last_error, last_agent, updated_at)
VALUES (sqlc.arg(node_id), sqlc.arg(scaler), sqlc.arg(failures), sqlc.arg(until_at), sqlc.arg(last_error), sqlc.arg(last_agent), sqlc.arg(now))
ON CONFLICT (node_id, scaler) DO UPDATE SET failures = excluded.failures, until_at = excluded.until_at,
  last_error = excluded.last_error, last_agent = excluded.last_agent, updated_at = excluded.updated_at;

-- name: NodeBackoff :one
SELECT * FROM scaler_backoffs WHERE node_id = sqlc.arg(node_id) AND scaler = sqlc.arg(scaler);

-- name: NodeSetProvisioningError :execrows
UPDATE execution_jobs SET provisioning_error = sqlc.arg(error) WHERE id = sqlc.arg(job_id) AND status = 'queued';

-- name: NodeScalers :many
SELECT * FROM scalers WHERE node_id = $1 ORDER BY position, name;

-- name: NodePutScaler :exec
INSERT INTO scalers (node_id, name, type, position, spec, max_agents, cap_cpu_milli, cap_mem_bytes, retiring, ready, not_ready, updated_at)
VALUES (sqlc.arg(node_id), sqlc.arg(name), sqlc.arg(type), sqlc.arg(position), sqlc.arg(spec), sqlc.arg(max_agents),
  sqlc.arg(cap_cpu_milli), sqlc.arg(cap_mem_bytes), sqlc.arg(retiring), sqlc.arg(ready), sqlc.arg(not_ready), sqlc.arg(now))
ON CONFLICT (node_id, name) DO UPDATE SET type = excluded.type, position = excluded.position, spec = excluded.spec,
  max_agents = excluded.max_agents, cap_cpu_milli = excluded.cap_cpu_milli, cap_mem_bytes = excluded.cap_mem_bytes,
  retiring = excluded.retiring, ready = excluded.ready, not_ready = excluded.not_ready, updated_at = excluded.updated_at;

-- name: NodeDeleteScaler :execrows
DELETE FROM scalers WHERE node_id = sqlc.arg(node_id) AND name = sqlc.arg(name);
