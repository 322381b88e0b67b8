-- The record of a run (internal/run notes, internal/api/read timeline).

-- name: InsertRunNote :execrows
-- The run's row is locked, so the count holds.
INSERT INTO run_notes (run_id, id, at, job_id, kind, actor, detail)
SELECT CAST(sqlc.arg(run_id) AS TEXT), CAST(sqlc.arg(id) AS TEXT), CAST(sqlc.arg(at) AS BIGINT), CAST(sqlc.arg(job_id) AS TEXT),
  CAST(sqlc.arg(kind) AS TEXT), CAST(sqlc.arg(actor) AS TEXT), CAST(sqlc.arg(detail) AS TEXT)
WHERE (SELECT COUNT(*) FROM run_notes n WHERE n.run_id = CAST(sqlc.arg(run_id) AS TEXT)) < CAST(sqlc.arg(max_notes) AS BIGINT);

-- name: InsertLastRunNote :exec
INSERT INTO run_notes (run_id, id, at, job_id, kind, actor, detail)
VALUES (sqlc.arg(run_id), 'last', sqlc.arg(at), '', sqlc.arg(kind), sqlc.arg(actor), sqlc.arg(detail))
ON CONFLICT (run_id, id) DO NOTHING;

-- name: RunNotes :many
SELECT id, at, job_id, kind, actor, detail FROM run_notes WHERE run_id = $1 ORDER BY at, id;

-- name: TimelineRun :one
SELECT r.id, r.org_id, r.routing_key, r.number, r.repo, r.workflow, r.status, r.branch, r.sha, r.actor, r.trigger_event, r.delivery_id,
  r.parent_run_id, r.original_run_id, r.created_at, r.started_at, r.finished_at, r.cancelled_by, r.failure_reason, r.failure_class,
  r.init_failure, r.chain_depth, r.run_attempt, d.received_at, d.kind AS delivery_kind, d.delivery_id AS sender_id, d.event AS delivery_event,
  r.matched_trigger
FROM execution_runs r LEFT JOIN deliveries d ON d.id = r.delivery_id WHERE r.id = $1;

-- name: TimelineJobs :many
SELECT id, name, status, allowed_failure, created_at, ready_at, queued_at, started_at, finished_at, error, init_failure, attempt,
  agent_id, shape, unroutable_since, provisioning_error, cancel_reason
FROM execution_jobs WHERE run_id = $1 ORDER BY idx LIMIT 5000;

-- name: TimelineNeeds :many
-- The last of a job's needs to end is what it waited for.
SELECT n.job_id, n.needs_id, n.needs_name, u.finished_at FROM execution_job_needs n JOIN execution_jobs u ON u.id = n.needs_id
WHERE n.run_id = $1 ORDER BY n.job_id LIMIT 20000;

-- name: TimelineAssignments :many
SELECT a.job_id, a.attempt, a.agent_id, a.created_at, a.sent_at, a.acked_at, a.ended_at, a.end_reason,
  COALESCE(g.scaler, '') AS scaler, COALESCE(g.node_id, '') AS node_id, COALESCE(i.name, '') AS node_name
FROM execution_jobs j JOIN assignments a ON a.job_id = j.id
  LEFT JOIN agents g ON g.id = a.agent_id LEFT JOIN cluster_instances i ON i.instance_id = g.node_id
WHERE j.run_id = $1 ORDER BY a.job_id, a.attempt LIMIT 20000;

-- name: TimelineLaunches :many
SELECT g.bound_job_id, g.id, g.scaler, g.node_id, g.requested_at, g.registered_at, g.ended_at, g.gone_reason, g.error,
  COALESCE(i.name, '') AS node_name
FROM execution_jobs j JOIN agents g ON g.bound_job_id = j.id LEFT JOIN cluster_instances i ON i.instance_id = g.node_id
WHERE j.run_id = $1 ORDER BY g.requested_at, g.id LIMIT 20000;

-- name: TimelineSteps :many
SELECT job_id, idx, name, status, started_at, finished_at, exit_code, error, allowed FROM execution_steps WHERE run_id = $1
ORDER BY job_id, idx LIMIT 20000;

-- name: TimelineStatuses :many
SELECT context, job_id, state, posted_at, failing_since, last_error, gave_up_at FROM commit_statuses WHERE run_id = $1 ORDER BY context LIMIT 5000;

-- name: TimelineEmitted :many
-- What the run caused: events of its steps, and its lifecycle events that started something.
SELECT id, event_name, source_job_id, created_at, match_outcome, matched_count FROM kici_events
WHERE source_run_id = $1 AND (emitter = 'step' OR matched_count > 0) ORDER BY created_at, id LIMIT 1000;

-- name: TimelineStarted :many
SELECT er.event_id, r.id, r.repo, r.number, r.workflow, r.created_at
FROM kici_events e JOIN event_runs er ON er.event_id = e.id JOIN execution_runs r ON r.id = er.run_id
WHERE e.source_run_id = sqlc.arg(run_id) AND (e.emitter = 'step' OR e.matched_count > 0) AND r.org_id = sqlc.arg(org_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY r.created_at, r.id LIMIT 1000;

-- name: TimelineCause :many
SELECT e.id, e.event_name, e.source_run_id FROM event_runs er JOIN kici_events e ON e.id = er.event_id WHERE er.run_id = $1;

-- name: TimelineReruns :many
SELECT id, repo, number, actor, created_at FROM execution_runs
WHERE original_run_id = $1 AND parent_run_id = $2 ORDER BY created_at, id LIMIT 200;

-- name: TimelineReasons :many
-- Why jobs of a shape waited: the changes in a time, and the last one before it.
SELECT at, reasons FROM shape_reason_log l WHERE l.shape = sqlc.arg(shape) AND l.at <= CAST(sqlc.arg(until) AS BIGINT)
  AND l.at >= COALESCE((SELECT MAX(b.at) FROM shape_reason_log b WHERE b.shape = sqlc.arg(shape) AND b.at <= CAST(sqlc.arg(since) AS BIGINT)), 0)
ORDER BY l.at LIMIT 500;

-- name: LogShapeReasons :exec
INSERT INTO shape_reason_log (shape, at, reasons) VALUES ($1, $2, $3)
ON CONFLICT (shape, at) DO UPDATE SET reasons = excluded.reasons;

-- name: PruneShapeReasons :execrows
DELETE FROM shape_reason_log WHERE at < $1;
