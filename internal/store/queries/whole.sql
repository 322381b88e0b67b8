-- Whole rows, and other looks and changes, for tests and the crash harness alone.

-- name: WholeRun :one
SELECT * FROM execution_runs WHERE id = $1;

-- name: WholeJobs :many
SELECT * FROM execution_jobs WHERE run_id = $1 ORDER BY idx;

-- name: WholeSteps :many
SELECT * FROM execution_steps WHERE job_id = $1 ORDER BY idx;

-- name: WholeAssignments :many
SELECT * FROM assignments WHERE job_id = $1 ORDER BY attempt;

-- name: WholeAgent :one
SELECT * FROM agents WHERE id = $1;

-- name: WholeAgents :many
SELECT * FROM agents ORDER BY requested_at, id;

-- name: EventsOfRun :many
SELECT * FROM kici_events WHERE source_run_id = $1 ORDER BY created_at, id;

-- name: DeleteJobsOfRun :exec
DELETE FROM execution_jobs WHERE run_id = $1;

-- name: ForceJobStatus :exec
UPDATE execution_jobs SET status = $3, finished_at = $4 WHERE run_id = $1 AND name = $2;

-- name: ForceDraining :exec
UPDATE agents SET draining = TRUE WHERE id = $1;

-- name: AgeEvents :exec
-- Lets time pass over the events of a test.
UPDATE kici_events SET claimed_at = claimed_at - sqlc.arg(ms), next_retry_at = next_retry_at - sqlc.arg(ms), created_at = created_at - sqlc.arg(ms),
  expires_at = expires_at - sqlc.arg(ms);

-- name: AgeFailureBatches :exec
UPDATE failure_batches SET opened_at = opened_at - sqlc.arg(ms), closes_at = closes_at - sqlc.arg(ms);

-- name: WholeEvent :one
SELECT * FROM kici_events WHERE id = $1;

-- name: WholeEvents :many
SELECT * FROM kici_events ORDER BY created_at, id;

-- name: WholeRuns :many
SELECT * FROM execution_runs ORDER BY created_at, id;

-- name: AccessLog :many
SELECT * FROM access_log
WHERE org_id = sqlc.arg(org_id)
  AND (at < CAST(sqlc.arg(before_at) AS BIGINT) OR (at = CAST(sqlc.arg(before_at) AS BIGINT) AND id < CAST(sqlc.arg(before_id) AS TEXT)))
ORDER BY at DESC, id DESC
LIMIT sqlc.arg(max_rows);

-- name: CountOpenDeliveries :one
SELECT COUNT(*) FROM (SELECT 1 FROM deliveries WHERE finished_at IS NULL LIMIT CAST(sqlc.arg(max_rows) AS INTEGER)) AS o;

-- name: RegistrationsOfOrg :many
SELECT * FROM workflow_registrations WHERE org_id = $1 ORDER BY repo, workflow;

-- name: NodeBackoffs :many
SELECT * FROM scaler_backoffs WHERE node_id = $1 ORDER BY scaler;

-- name: KnownRun :one
SELECT COUNT(*) FROM execution_runs WHERE id = $1;

-- name: AgeRun :exec
-- For tests: a run of long ago.
UPDATE execution_runs SET created_at = sqlc.arg(at), finished_at = sqlc.arg(at) WHERE id = sqlc.arg(id);
