-- Reads of the API and the dashboard (internal/api/read). They leave out the large columns (event, lock_entry, lock_job,
-- body) and take one statement per page and kind, never one per row. An empty argument means "any".

-- name: ReadRuns :many
SELECT id, number, routing_key, repo, workflow, status, title, ref, branch, sha, actor, trigger_event, warnings,
  delivery_id, parent_run_id, created_at, started_at, finished_at, cancelled_by, failure_reason, failure_class, init_failure
FROM execution_runs
WHERE execution_runs.org_id = sqlc.arg(org_id)
  AND (created_at, id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  AND (created_at, id) >= (CAST(sqlc.arg(floor_at) AS BIGINT), CAST(sqlc.arg(floor_id) AS TEXT))
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR execution_runs.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
  AND (CAST(sqlc.arg(statuses) AS TEXT) = '' OR CAST(sqlc.arg(statuses) AS TEXT) LIKE '%,' || status || ',%')
  AND (CAST(sqlc.arg(workflow) AS TEXT) = '' OR workflow = CAST(sqlc.arg(workflow) AS TEXT))
  AND (CAST(sqlc.arg(repo) AS TEXT) = '' OR repo = CAST(sqlc.arg(repo) AS TEXT))
  AND (CAST(sqlc.arg(branch) AS TEXT) = '' OR branch = CAST(sqlc.arg(branch) AS TEXT))
  AND (CAST(sqlc.arg(actor) AS TEXT) = '' OR actor = CAST(sqlc.arg(actor) AS TEXT))
  AND (CAST(sqlc.arg(event) AS TEXT) = '' OR trigger_event = CAST(sqlc.arg(event) AS TEXT)
    OR trigger_event LIKE CAST(sqlc.arg(event_prefix) AS TEXT) ESCAPE '!')
  AND (CAST(sqlc.arg(delivery_id) AS TEXT) = '' OR execution_runs.delivery_id IN (SELECT d.id FROM deliveries d
    WHERE d.org_id = sqlc.arg(org_id) AND (d.id = CAST(sqlc.arg(delivery_id) AS TEXT) OR d.delivery_id = CAST(sqlc.arg(delivery_id) AS TEXT))))
  AND (CAST(sqlc.arg(pattern) AS TEXT) = ''
    OR lower(title || '|' || workflow || '|' || repo || '#' || CAST(number AS TEXT) || '|' || branch || '|' || actor || '|' || sha)
      LIKE CAST(sqlc.arg(pattern) AS TEXT) ESCAPE '!')
ORDER BY created_at DESC, id DESC
LIMIT sqlc.arg(max_rows);

-- name: ReadRunsFloor :one
-- The last of the next max_rows runs of the list: as far as a page with filters looks. It reads the index alone.
SELECT w.created_at, w.id FROM (
  SELECT r.created_at, r.id FROM execution_runs r
  WHERE r.org_id = sqlc.arg(org_id)
    AND (r.created_at, r.id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  ORDER BY r.created_at DESC, r.id DESC LIMIT sqlc.arg(max_rows)
) AS w ORDER BY w.created_at, w.id LIMIT 1;

-- name: ReadRunsOfDelivery :many
-- They were made in one transaction, with the first of them.
SELECT r.id, r.number, r.routing_key, r.repo, r.workflow, r.status, r.title, r.ref, r.branch, r.sha, r.actor, r.trigger_event, r.warnings,
  r.delivery_id, r.parent_run_id, r.created_at, r.started_at, r.finished_at, r.cancelled_by, r.failure_reason, r.failure_class, r.init_failure
FROM execution_runs r JOIN execution_runs f ON f.id = sqlc.arg(first_run)
WHERE r.org_id = sqlc.arg(org_id) AND r.created_at >= f.created_at AND r.created_at < f.created_at + 60000
  AND r.delivery_id = sqlc.arg(delivery_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY r.created_at, r.id LIMIT 100;

-- name: ReadOpenRuns :many
-- How many runs have not ended, by status; beyond 10,000 the count is a lower bound. The organisation is compared so that no
-- index has it: that of the open runs is the one to use.
SELECT o.status, COUNT(*) AS runs FROM (
  SELECT r.status FROM execution_runs r
  WHERE r.finished_at IS NULL AND r.status IN ('pending', 'running', 'held', 'cancelling') AND r.org_id || '' = sqlc.arg(org_id)
    AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
  LIMIT 10000
) AS o GROUP BY o.status;

-- name: ReadLastFailure :many
SELECT r.id, r.finished_at FROM execution_runs r
WHERE r.org_id = sqlc.arg(org_id) AND r.status = 'failed' AND r.finished_at IS NOT NULL
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY r.finished_at DESC LIMIT 1;

-- name: ReadRun :one
SELECT id, number, routing_key, repo, workflow, status, title, ref, branch, sha, actor, trigger_event, warnings,
  delivery_id, parent_run_id, created_at, started_at, finished_at, cancelled_by, failure_reason, failure_class, init_failure
FROM execution_runs WHERE id = $1 AND org_id = $2;

-- name: ReadRunExtra :one
SELECT inputs, matched_trigger, original_run_id, trust_tier, run_attempt FROM execution_runs WHERE id = $1;

-- name: ReadRunIDsByPrefix :many
SELECT id FROM execution_runs
WHERE id >= sqlc.arg(low) AND id < sqlc.arg(high) AND org_id = sqlc.arg(org_id) ORDER BY id LIMIT 2;

-- name: ReadRunIDByNumber :one
SELECT id FROM execution_runs WHERE org_id = $1 AND repo = $2 AND number = $3;

-- name: ReadRunReposByNumber :many
SELECT id, repo FROM execution_runs WHERE org_id = $1 AND number = $2 ORDER BY created_at DESC LIMIT 6;

-- name: ReadRunJobs :many
SELECT j.id, j.run_id, j.idx, j.name, j.base_name, j.display_name, j.status, j.matrix, j.labels, j.exclude_labels, j.shape,
  j.needs_satisfied, j.allowed_failure, j.attempt, j.dispatch_attempts, j.agent_id, j.unroutable_since, j.provisioning_error,
  j.created_at, j.queued_at, j.started_at, j.finished_at, j.recover_by, j.queue_deadline_at, j.cancel_reason, j.error,
  j.init_failure, j.kill_method, j.outputs, j.log_bytes, j.cpu_milli, j.mem_bytes, s.created_at AS assigned_at,
  a.scaler AS agent_scaler, n.name AS agent_node,
  b.id AS bound_id, b.state AS bound_state, b.detail AS bound_detail, b.scaler AS bound_scaler, bn.name AS bound_node
FROM execution_jobs j
LEFT JOIN agents a ON a.id = j.agent_id
LEFT JOIN cluster_instances n ON n.instance_id = a.node_id
LEFT JOIN agents b ON b.bound_job_id = j.id AND b.state NOT IN ('gone', 'ending')
LEFT JOIN cluster_instances bn ON bn.instance_id = b.node_id
LEFT JOIN assignments s ON s.job_id = j.id AND s.attempt = j.attempt
WHERE j.run_id = $1
ORDER BY j.idx, j.id;

-- name: ReadJobRow :one
SELECT j.id, j.run_id, j.idx, j.name, j.base_name, j.display_name, j.status, j.matrix, j.labels, j.exclude_labels, j.shape,
  j.needs_satisfied, j.allowed_failure, j.attempt, j.dispatch_attempts, j.agent_id, j.unroutable_since, j.provisioning_error,
  j.created_at, j.queued_at, j.started_at, j.finished_at, j.recover_by, j.queue_deadline_at, j.cancel_reason, j.error,
  j.init_failure, j.kill_method, j.outputs, j.log_bytes, j.cpu_milli, j.mem_bytes, s.created_at AS assigned_at,
  a.scaler AS agent_scaler, n.name AS agent_node,
  b.id AS bound_id, b.state AS bound_state, b.detail AS bound_detail, b.scaler AS bound_scaler, bn.name AS bound_node
FROM execution_jobs j
LEFT JOIN agents a ON a.id = j.agent_id
LEFT JOIN cluster_instances n ON n.instance_id = a.node_id
LEFT JOIN agents b ON b.bound_job_id = j.id AND b.state NOT IN ('gone', 'ending')
LEFT JOIN cluster_instances bn ON bn.instance_id = b.node_id
LEFT JOIN assignments s ON s.job_id = j.id AND s.attempt = j.attempt
WHERE j.id = $1 AND j.org_id = $2;

-- name: ReadJobPlan :one
SELECT lock_job FROM execution_jobs WHERE id = $1;

-- name: ReadJobIDsByPrefix :many
SELECT id FROM execution_jobs
WHERE id >= sqlc.arg(low) AND id < sqlc.arg(high) AND org_id = sqlc.arg(org_id) ORDER BY id LIMIT 2;

-- name: ReadJobIDByName :one
SELECT id FROM execution_jobs WHERE run_id = $1 AND name = $2;

-- name: ReadRecentJobIDByName :one
-- Of the newest of the last runs that has such a job.
SELECT j.id FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id
WHERE j.name = sqlc.arg(name) AND j.run_id IN (
  SELECT n.id FROM execution_runs n
  WHERE n.org_id = sqlc.arg(org_id) AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR n.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
  ORDER BY n.created_at DESC, n.id DESC LIMIT sqlc.arg(recent)
)
ORDER BY r.created_at DESC, r.id DESC LIMIT 1;

-- name: ReadRunNeeds :many
SELECT e.job_id, e.needs_id, e.needs_name, e.run_on FROM execution_job_needs e
JOIN execution_jobs u ON u.id = e.needs_id
WHERE e.run_id = $1 ORDER BY e.job_id, u.idx, e.needs_id;

-- name: ReadJobNeeds :many
SELECT e.job_id, e.needs_id, e.run_on, u.name, u.status, u.allowed_failure FROM execution_job_needs e
JOIN execution_jobs u ON u.id = e.needs_id
WHERE e.job_id = $1 ORDER BY u.idx, e.needs_id;

-- name: ReadRunSteps :many
SELECT s.job_id, s.idx, s.name, s.status, s.started_at, s.finished_at, s.exit_code, s.error, s.allowed, s.retries
FROM execution_steps s JOIN execution_jobs j ON j.id = s.job_id
WHERE j.run_id = $1 ORDER BY j.idx, s.job_id, s.idx;

-- name: ReadJobSteps :many
SELECT s.job_id, s.idx, s.name, s.status, s.started_at, s.finished_at, s.exit_code, s.error, s.allowed, s.retries
FROM execution_steps s WHERE s.job_id = $1 ORDER BY s.idx;

-- name: ReadRunShapeReasons :many
SELECT s.shape, s.reasons, s.updated_at FROM shape_reasons s
WHERE s.shape IN (SELECT j.shape FROM execution_jobs j WHERE j.run_id = $1 AND j.status = 'queued');

-- name: ReadShapeReasons :one
SELECT reasons, updated_at FROM shape_reasons WHERE shape = $1;

-- name: ReadQueue :many
SELECT j.id, j.run_id, j.name, j.display_name, j.base_name, j.labels, j.exclude_labels, j.shape, j.queued_at, j.agent_id,
  j.queue_deadline_at, j.dispatch_attempts, j.provisioning_error, j.unroutable_since, j.cpu_milli, j.mem_bytes,
  r.number, r.repo, r.workflow, r.routing_key, r.title,
  b.id AS bound_id, b.state AS bound_state, b.detail AS bound_detail, b.scaler AS bound_scaler, n.name AS bound_node
FROM execution_jobs j
JOIN execution_runs r ON r.id = j.run_id
LEFT JOIN agents b ON b.bound_job_id = j.id AND b.state NOT IN ('gone', 'ending')
LEFT JOIN cluster_instances n ON n.instance_id = b.node_id
WHERE j.status = 'queued' AND j.org_id = sqlc.arg(org_id)
  AND (j.queued_at, j.id) > (CAST(sqlc.arg(after_at) AS BIGINT), CAST(sqlc.arg(after_id) AS TEXT))
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY j.queued_at, j.id
LIMIT sqlc.arg(max_rows);

-- name: ReadQueueTotals :one
SELECT COUNT(*) AS waiting, CAST(COALESCE(MIN(j.queued_at), 0) AS BIGINT) AS oldest
FROM execution_jobs j WHERE j.status = 'queued' AND j.org_id = $1;

-- name: ReadQueueTotalsOfKey :one
SELECT COUNT(*) AS waiting, CAST(COALESCE(MIN(j.queued_at), 0) AS BIGINT) AS oldest
FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id
WHERE j.status = 'queued' AND j.org_id = $1 AND r.routing_key = $2;

-- name: ReadAllShapeReasons :many
SELECT shape, reasons, updated_at FROM shape_reasons ORDER BY updated_at DESC LIMIT 1000;

-- Three statements, so that each has its index: every agent there ever was, the live ones, and one.

-- name: ReadAgents :many
SELECT a.id, a.type, a.scaler, a.node_id, a.state, a.labels, a.bound_job_id, a.requested_at, a.state_at, a.registered_at,
  a.instance_id, a.link_lost_at, a.last_seen_at, a.ended_at, a.gone_reason, a.error, a.host, a.platform, a.arch, a.version,
  a.jobs_done, a.cpu_milli, a.mem_bytes, a.draining,
  n.name AS node_name, s.job_id AS open_job_id, j.id AS job_id, j.name AS job_name, j.run_id AS job_run_id,
  r.number AS run_number, r.repo AS run_repo, r.routing_key AS run_key
FROM agents a
LEFT JOIN cluster_instances n ON n.instance_id = a.node_id
LEFT JOIN assignments s ON s.agent_id = a.id AND s.ended_at IS NULL
LEFT JOIN execution_jobs j ON j.id = COALESCE(s.job_id, a.bound_job_id)
LEFT JOIN execution_runs r ON r.id = j.run_id
WHERE a.org_id IN ('', CAST(sqlc.arg(org_id) AS TEXT))
  AND (a.requested_at, a.id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  AND (CAST(sqlc.arg(scaler) AS TEXT) = '' OR a.scaler = CAST(sqlc.arg(scaler) AS TEXT))
ORDER BY a.requested_at DESC, a.id DESC
LIMIT sqlc.arg(max_rows);

-- name: ReadLiveAgents :many
SELECT a.id, a.type, a.scaler, a.node_id, a.state, a.labels, a.bound_job_id, a.requested_at, a.state_at, a.registered_at,
  a.instance_id, a.link_lost_at, a.last_seen_at, a.ended_at, a.gone_reason, a.error, a.host, a.platform, a.arch, a.version,
  a.jobs_done, a.cpu_milli, a.mem_bytes, a.draining,
  n.name AS node_name, s.job_id AS open_job_id, j.id AS job_id, j.name AS job_name, j.run_id AS job_run_id,
  r.number AS run_number, r.repo AS run_repo, r.routing_key AS run_key
FROM agents a
LEFT JOIN cluster_instances n ON n.instance_id = a.node_id
LEFT JOIN assignments s ON s.agent_id = a.id AND s.ended_at IS NULL
LEFT JOIN execution_jobs j ON j.id = COALESCE(s.job_id, a.bound_job_id)
LEFT JOIN execution_runs r ON r.id = j.run_id
WHERE a.state <> 'gone' AND a.org_id IN ('', CAST(sqlc.arg(org_id) AS TEXT))
  AND (a.requested_at + 0, a.id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  AND (CAST(sqlc.arg(scaler) AS TEXT) = '' OR a.scaler = CAST(sqlc.arg(scaler) AS TEXT))
ORDER BY a.requested_at + 0 DESC, a.id DESC
LIMIT sqlc.arg(max_rows);

-- name: ReadAgent :one
SELECT a.id, a.type, a.scaler, a.node_id, a.state, a.labels, a.bound_job_id, a.requested_at, a.state_at, a.registered_at,
  a.instance_id, a.link_lost_at, a.last_seen_at, a.ended_at, a.gone_reason, a.error, a.host, a.platform, a.arch, a.version,
  a.jobs_done, a.cpu_milli, a.mem_bytes, a.draining,
  n.name AS node_name, s.job_id AS open_job_id, j.id AS job_id, j.name AS job_name, j.run_id AS job_run_id,
  r.number AS run_number, r.repo AS run_repo, r.routing_key AS run_key
FROM agents a
LEFT JOIN cluster_instances n ON n.instance_id = a.node_id
LEFT JOIN assignments s ON s.agent_id = a.id AND s.ended_at IS NULL
LEFT JOIN execution_jobs j ON j.id = COALESCE(s.job_id, a.bound_job_id)
LEFT JOIN execution_runs r ON r.id = j.run_id
WHERE a.id = sqlc.arg(agent_id) AND a.org_id IN ('', CAST(sqlc.arg(org_id) AS TEXT));

-- name: ReadScalers :many
SELECT s.node_id, s.name, s.type, s.position, s.spec, s.max_agents, s.cap_cpu_milli, s.cap_mem_bytes, s.retiring, s.ready,
  s.not_ready, s.updated_at, n.name AS node_name, n.heartbeat_at AS node_heartbeat, n.draining AS node_draining,
  b.failures, b.until_at, b.last_error
FROM scalers s
LEFT JOIN cluster_instances n ON n.instance_id = s.node_id
LEFT JOIN scaler_backoffs b ON b.node_id = s.node_id AND b.scaler = s.name
ORDER BY s.name, s.node_id;

-- name: ReadScalerLaunches :many
-- What launches are doing that takes long; of the organisation's own agents.
SELECT node_id, scaler, detail, COUNT(*) AS agents
FROM agents WHERE state = 'starting' AND detail <> '' AND org_id = $1 GROUP BY node_id, scaler, detail ORDER BY node_id, scaler, detail LIMIT 500;

-- name: ReadScalerUsage :many
SELECT node_id, scaler, COUNT(*) AS agents,
  CAST(SUM(CASE WHEN state = 'ending' THEN 1 ELSE 0 END) AS BIGINT) AS ending,
  CAST(SUM(CASE WHEN state NOT IN ('ending', 'online', 'draining') THEN 1 ELSE 0 END) AS BIGINT) AS starting,
  CAST(SUM(CASE WHEN bound_job_id IS NULL AND state <> 'ending' AND jobs_done = 0
    AND id NOT IN (SELECT w.agent_id FROM assignments w WHERE w.ended_at IS NULL) THEN 1 ELSE 0 END) AS BIGINT) AS warm,
  CAST(SUM(cpu_milli) AS BIGINT) AS cpu_milli, CAST(SUM(mem_bytes) AS BIGINT) AS mem_bytes
FROM agents WHERE state <> 'gone' GROUP BY node_id, scaler;

-- name: ReadScalerHolders :many
-- Which runs hold the agents of each scaler.
SELECT a.node_id, a.scaler, r.id AS run_id, r.repo, r.number, r.routing_key, COUNT(*) AS agents
FROM agents a
LEFT JOIN assignments s ON s.agent_id = a.id AND s.ended_at IS NULL
JOIN execution_jobs j ON j.id = COALESCE(s.job_id, a.bound_job_id)
JOIN execution_runs r ON r.id = j.run_id
WHERE a.state <> 'gone' AND a.scaler <> '' AND r.org_id = sqlc.arg(org_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
GROUP BY a.node_id, a.scaler, r.id, r.repo, r.number, r.routing_key
ORDER BY agents DESC, r.id LIMIT 500;

-- name: ReadScalerFailures :many
-- Of the organisation's own agents: what another one's launch has printed is nobody else's.
SELECT f.agent_id, f.node_id, f.scaler, f.at, f.job_id, f.error, f.tail
FROM scaler_failures f JOIN agents g ON g.id = f.agent_id
WHERE f.at >= $1 AND g.org_id = $2 ORDER BY f.at DESC, f.agent_id LIMIT 200;

-- name: ReadSources :many
SELECT id, kind, name, routing_key, repo, config, enabled, created_at FROM sources
WHERE org_id = sqlc.arg(org_id) AND deleted_at IS NULL
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY name LIMIT 1000;

-- name: ReadSource :many
SELECT id, kind, name, routing_key, repo, config, enabled, created_at FROM sources
WHERE org_id = sqlc.arg(org_id) AND deleted_at IS NULL
  AND (name = sqlc.arg(ref) OR id = sqlc.arg(ref) OR routing_key = sqlc.arg(ref))
ORDER BY name LIMIT 1;

-- name: ReadDeliveries :many
SELECT d.id, d.delivery_id, d.source_id, d.routing_key, d.kind, d.event, d.action, d.repo, d.ref, d.sha, d.status, d.duplicates,
  d.body_size, d.received_at, d.attempts, d.finished_at, d.matched, d.run_id, d.error, d.next_attempt_at, s.name AS source_name
FROM deliveries d LEFT JOIN sources s ON s.id = d.source_id
WHERE d.org_id = sqlc.arg(org_id)
  AND (d.received_at, d.id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  AND (d.received_at, d.id) >= (CAST(sqlc.arg(floor_at) AS BIGINT), CAST(sqlc.arg(floor_id) AS TEXT))
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR d.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
  AND (CAST(sqlc.arg(source) AS TEXT) = '' OR s.name = CAST(sqlc.arg(source) AS TEXT))
  AND (CAST(sqlc.arg(status) AS TEXT) = '' OR d.status = CAST(sqlc.arg(status) AS TEXT))
  AND (CAST(sqlc.arg(event) AS TEXT) = '' OR d.event = CAST(sqlc.arg(event) AS TEXT))
ORDER BY d.received_at DESC, d.id DESC
LIMIT sqlc.arg(max_rows);

-- name: ReadDeliveriesFloor :one
-- As ReadRunsFloor.
SELECT w.received_at, w.id FROM (
  SELECT d.received_at, d.id FROM deliveries d
  WHERE d.org_id = sqlc.arg(org_id)
    AND (d.received_at, d.id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  ORDER BY d.received_at DESC, d.id DESC LIMIT sqlc.arg(max_rows)
) AS w ORDER BY w.received_at, w.id LIMIT 1;

-- name: ReadLastDeliveries :many
-- The last delivery of each source among the last max_rows. Ids grow with time.
SELECT d.source_id, d.id, d.event, d.status, d.error, d.matched, d.received_at FROM deliveries d
WHERE d.id IN (
  SELECT MAX(w.id) FROM (
    SELECT l.id, l.source_id FROM deliveries l
    WHERE l.org_id = sqlc.arg(org_id) ORDER BY l.received_at DESC, l.id DESC LIMIT sqlc.arg(max_rows)
  ) AS w GROUP BY w.source_id
);

-- name: ReadSourcePolls :many
SELECT p.source_id, p.next_at, p.polled_at, p.failures, p.last_error FROM source_polls p
JOIN sources s ON s.id = p.source_id WHERE s.org_id = $1 AND s.deleted_at IS NULL;

-- name: ReadDelivery :many
SELECT d.id, d.delivery_id, d.source_id, d.routing_key, d.kind, d.event, d.action, d.repo, d.ref, d.sha, d.status, d.duplicates,
  d.body_size, d.received_at, d.attempts, d.finished_at, d.matched, d.run_id, d.error, d.next_attempt_at, s.name AS source_name
FROM deliveries d LEFT JOIN sources s ON s.id = d.source_id
WHERE d.org_id = sqlc.arg(org_id) AND (d.id = sqlc.arg(ref) OR d.delivery_id = sqlc.arg(ref))
ORDER BY d.received_at DESC LIMIT 1;

-- name: ReadDeliveryExtra :one
SELECT decisions, headers FROM deliveries WHERE id = $1;

-- name: ReadDeliveryBody :one
SELECT body, body_encoding FROM deliveries WHERE id = $1;
