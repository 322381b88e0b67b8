-- Whole rows of a run's life, for tests and the crash harness.

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
