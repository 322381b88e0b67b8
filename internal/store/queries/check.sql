-- Commit statuses (internal/check): which runs have something to post, who posts it, and what was posted. A claim is the run's
-- checks_lease; whoever holds it is alone for the run, and for every run that shows its statuses under the same names.

-- name: ChecksDue :many
-- A few of each source, so that one with many does not stand before the others.
SELECT id, org_id, routing_key, checks_due_at FROM (
  SELECT id, org_id, routing_key, checks_due_at,
    ROW_NUMBER() OVER (PARTITION BY routing_key ORDER BY checks_due_at, id) AS place
  FROM execution_runs WHERE checks_changed > checks_done AND checks_lease <= sqlc.arg(now)
) AS waiting WHERE place <= 4 ORDER BY checks_due_at, id LIMIT 200;

-- name: ChecksKey :one
SELECT id, org_id, number, routing_key, repo, workflow, sha FROM execution_runs
WHERE id = $1 AND checks_changed > checks_done;

-- name: LockCheckRivals :many
-- The newest runs of the same workflow at the same commit, locked newest first.
SELECT id, number, checks_changed, checks_done, checks_due_at, checks_lease FROM execution_runs
WHERE routing_key = $1 AND repo = $2 AND sha = $3 AND workflow = $4 AND checks_changed > 0
ORDER BY number DESC LIMIT 10 FOR UPDATE;

-- name: ClaimChecks :execrows
UPDATE execution_runs SET checks_lease = $2 WHERE id = $1;

-- name: DeferChecks :execrows
UPDATE execution_runs SET checks_due_at = $2 WHERE id = $1;

-- name: ReleaseChecks :execrows
-- What ended during the pass waits no longer.
UPDATE execution_runs SET checks_lease = 0, checks_done = sqlc.arg(done),
  checks_due_at = CASE WHEN finished_at IS NOT NULL AND checks_changed > sqlc.arg(seen) THEN 0 ELSE CAST(sqlc.arg(due_at) AS BIGINT) END
WHERE id = sqlc.arg(id) AND checks_lease = sqlc.arg(lease);

-- name: SupersedeChecks :execrows
UPDATE execution_runs SET checks_done = checks_changed WHERE id = $1;

-- name: SupersedeStatuses :execrows
UPDATE commit_statuses SET wanted = state, attempts = 0, failing_since = NULL, gave_up_at = NULL,
  reason = 'superseded', last_error = $2 WHERE run_id = $1;

-- name: CheckRun :one
SELECT id, org_id, workflow, status, sha, created_at, started_at, finished_at, failure_reason, init_failure,
  checks_changed, checks_done
FROM execution_runs WHERE id = $1;

-- name: CheckJobs :many
SELECT j.id, j.name, j.status, j.allowed_failure, j.started_at, j.finished_at, j.cancel_reason, j.error, j.init_failure,
  CASE WHEN a.end_reason = 'lost' THEN TRUE ELSE FALSE END AS lost
FROM execution_jobs j LEFT JOIN assignments a ON a.job_id = j.id AND a.attempt = j.attempt
WHERE j.run_id = $1 ORDER BY j.idx;

-- name: CheckFailedSteps :many
SELECT s.job_id, s.idx, s.name, s.exit_code FROM execution_jobs j JOIN execution_steps s ON s.job_id = j.id
WHERE j.run_id = $1 AND j.status = 'failed' AND s.status = 'failed' AND s.allowed = FALSE ORDER BY s.job_id, s.idx;

-- name: CommitStatuses :many
SELECT context, job_id, sha, state, description, wanted, attempts, reason, last_error, created_at, posted_at, failing_since, gave_up_at
FROM commit_statuses WHERE run_id = $1 ORDER BY created_at, context;

-- name: PutCommitStatus :exec
INSERT INTO commit_statuses (run_id, context, org_id, job_id, sha, state, description, wanted, attempts, last_error, created_at,
  posted_at, failing_since, gave_up_at, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (run_id, context) DO UPDATE SET state = excluded.state, description = excluded.description, wanted = excluded.wanted,
  attempts = excluded.attempts, last_error = excluded.last_error, posted_at = excluded.posted_at,
  reason = excluded.reason, failing_since = excluded.failing_since, gave_up_at = excluded.gave_up_at;

-- name: HurryChecks :execrows
-- A source was changed: what waits because of it is tried now.
UPDATE execution_runs SET checks_due_at = 0 WHERE checks_changed > checks_done AND checks_due_at > 0;

-- name: PostponeChecks :execrows
UPDATE execution_runs SET checks_lease = 0, checks_due_at = $3 WHERE id = $1 AND checks_lease = $2;

-- name: ReadCheckRuns :many
-- Statuses as people see them, newest run first. An empty routing key means any.
SELECT c.run_id, r.number, r.repo, r.workflow, c.context, c.job_id, c.sha, c.state, c.description, c.wanted, c.attempts,
  c.reason, c.last_error, c.created_at, c.posted_at, c.failing_since, c.gave_up_at
FROM commit_statuses c JOIN execution_runs r ON r.id = c.run_id
WHERE c.org_id = sqlc.arg(org_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY c.created_at DESC, c.run_id DESC, c.context LIMIT sqlc.arg(max_rows);

-- name: ReadCheckRunsOfRun :many
SELECT c.run_id, r.number, r.repo, r.workflow, c.context, c.job_id, c.sha, c.state, c.description, c.wanted, c.attempts,
  c.reason, c.last_error, c.created_at, c.posted_at, c.failing_since, c.gave_up_at
FROM commit_statuses c JOIN execution_runs r ON r.id = c.run_id
WHERE c.run_id = sqlc.arg(run_id)
ORDER BY c.created_at DESC, c.run_id DESC, c.context LIMIT sqlc.arg(max_rows);

-- name: ReadFailingCheckRuns :many
SELECT c.run_id, r.number, r.repo, r.workflow, c.context, c.job_id, c.sha, c.state, c.description, c.wanted, c.attempts,
  c.reason, c.last_error, c.created_at, c.posted_at, c.failing_since, c.gave_up_at
FROM commit_statuses c JOIN execution_runs r ON r.id = c.run_id
WHERE c.org_id = sqlc.arg(org_id) AND c.failing_since IS NOT NULL
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY c.created_at DESC, c.run_id DESC, c.context LIMIT sqlc.arg(max_rows);

-- name: ReadChecksOfRun :one
SELECT checks_changed, checks_done, routing_key FROM execution_runs WHERE id = $1;

-- name: ReadSourceName :many
SELECT name FROM sources WHERE routing_key = $1;
