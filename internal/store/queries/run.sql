-- Runs, jobs and steps (internal/run). Every function of a run's life locks the run's row first, then its jobs: two
-- coordinators never decide about one run at once (PIPE-19). The wide columns are read only where they are used.

-- name: NextRunNumber :one
INSERT INTO run_numbers (org_id, repo, last) VALUES ($1, $2, 1)
ON CONFLICT (org_id, repo) DO UPDATE SET last = run_numbers.last + 1
RETURNING last;

-- name: RunByDedupKey :one
SELECT id FROM execution_runs WHERE dedup_key = $1;

-- name: InsertRun :execrows
INSERT INTO execution_runs (
  id, org_id, number, routing_key, repo, workflow, status, title, ref, branch, sha, actor, trigger_event, warnings,
  delivery_id, dedup_key, trust_tier, is_fork, chain_depth, parent_run_id, original_run_id, created_at, started_at, finished_at,
  deadline_at, cancelling_at, cancel_force, cancelled_by, failure_reason, failure_class, init_failure, run_attempt,
  checks_changed, event, inputs, lock_entry, matched_trigger
) VALUES (
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
  $15, $16, $17, $18, $19, $20, $21, $22, NULL, $23,
  $24, NULL, FALSE, '', $25, $26, $27, $28,
  $29, $30, $31, $32, $33
) ON CONFLICT (dedup_key) DO NOTHING;

-- name: InsertRunJob :exec
INSERT INTO execution_jobs (
  id, run_id, org_id, idx, name, base_name, display_name, status, matrix, fanout_index, fanout_total,
  labels, exclude_labels, cpu_milli, mem_bytes, cpu_limit_milli, mem_limit_bytes, shape, needs_satisfied, continue_on_error,
  allowed_failure, timeout_ms, queue_deadline_at, attempt, dispatch_attempts, agent_id, unroutable_since, provisioning_error,
  created_at, ready_at, queued_at, started_at, finished_at, heartbeat_at, recover_by, cancel_reason, cancel_force, error,
  init_failure, kill_method, log_bytes, report_seq, lock_job, outputs
) VALUES (
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
  '[]', '[]', 0, 0, 0, 0, '', FALSE, $12,
  $13, $14, NULL, 0, 0, NULL, NULL, '',
  $15, NULL, NULL, $16, $17, NULL, NULL, '', FALSE, $20,
  '', '', 0, 0, $18, $19
);

-- name: InsertRunNeeds :exec
INSERT INTO execution_job_needs (run_id, job_id, needs_id, needs_name, run_on)
SELECT d.run_id, d.id, u.id, u.base_name, CAST(sqlc.arg(run_on) AS TEXT)
FROM execution_jobs d JOIN execution_jobs u ON u.run_id = d.run_id
WHERE d.run_id = sqlc.arg(run_id) AND d.idx >= sqlc.arg(job_from) AND d.idx < sqlc.arg(job_to)
  AND u.idx >= sqlc.arg(needs_from) AND u.idx < sqlc.arg(needs_to);

-- name: LockRun :one
SELECT id, org_id, number, routing_key, repo, workflow, status, title, ref, branch, sha, actor, trigger_event,
  trust_tier, is_fork, chain_depth, created_at, started_at, deadline_at, cancelling_at, cancel_force, cancelled_by, failure_reason,
  failure_class, run_attempt, checks_changed
FROM execution_runs WHERE id = $1 FOR UPDATE;

-- name: LockRunOfJob :one
-- LockRun by one of its jobs.
SELECT id, org_id, number, routing_key, repo, workflow, status, title, ref, branch, sha, actor, trigger_event,
  trust_tier, is_fork, chain_depth, created_at, started_at, deadline_at, cancelling_at, cancel_force, cancelled_by, failure_reason,
  failure_class, run_attempt, checks_changed
FROM execution_runs WHERE id = (SELECT j.run_id FROM execution_jobs j WHERE j.id = $1) FOR UPDATE;

-- name: RunDefinition :one
SELECT event, inputs, lock_entry FROM execution_runs WHERE id = $1;

-- name: RunForRerun :one
SELECT id, org_id, routing_key, repo, status, trust_tier, original_run_id, event, inputs, lock_entry, matched_trigger, delivery_id, checks_changed
FROM execution_runs WHERE id = $1 AND org_id = $2;

-- name: CountReruns :one
SELECT COUNT(*) FROM execution_runs WHERE original_run_id = $1;

-- name: MarkRunRunning :execrows
UPDATE execution_runs SET status = 'running', started_at = $2 WHERE id = $1 AND status = 'pending';

-- name: MarkRunCancelling :execrows
UPDATE execution_runs SET status = 'cancelling', cancelling_at = $2, cancel_force = $3, cancelled_by = $4,
  failure_reason = CASE WHEN failure_reason = '' THEN CAST($5 AS TEXT) ELSE failure_reason END
WHERE id = $1 AND status IN ('pending', 'running', 'held');

-- name: ForceRunCancel :execrows
UPDATE execution_runs SET cancel_force = TRUE WHERE id = $1 AND status = 'cancelling';

-- name: NoteRunFailure :execrows
UPDATE execution_runs SET failure_reason = $2, failure_class = $3 WHERE id = $1 AND failure_reason = '' AND finished_at IS NULL;

-- name: EndRun :execrows
UPDATE execution_runs SET status = $2, finished_at = $3, failure_class = $4, failure_reason = $5
WHERE id = $1 AND finished_at IS NULL;

-- name: TouchChecks :execrows
-- The run has ended: no need to wait for more changes.
UPDATE execution_runs SET checks_changed = checks_changed + 1,
  checks_due_at = CASE WHEN finished_at IS NULL THEN checks_due_at ELSE 0 END
WHERE id = $1 AND checks_changed > 0;

-- name: LockJob :one
-- It is read after the run was locked, so the slots and waves that it counts are all that there are.
SELECT execution_jobs.id, execution_jobs.run_id, execution_jobs.org_id, name, execution_jobs.base_name, display_name, status, needs_satisfied,
  continue_on_error, queue_deadline_at, attempt, dispatch_attempts, agent_id, unroutable_since, provisioning_error, execution_jobs.created_at,
  started_at, finished_at, heartbeat_at, recover_by, cancel_force, error, report_seq,
  (SELECT COUNT(*) FROM concurrency_slots s WHERE s.run_id = execution_jobs.run_id AND s.job_id = execution_jobs.id AND s.state <> 'released') AS slots,
  (SELECT COUNT(*) FROM fanouts f WHERE f.run_id = execution_jobs.run_id AND f.base_name = execution_jobs.base_name) AS waves
FROM execution_jobs WHERE execution_jobs.id = $1 FOR UPDATE;

-- name: LockOpenJobs :many
SELECT j.id, j.name, j.base_name, j.status, j.attempt, j.agent_id, j.started_at, j.cancel_force, a.sent_at, a.job_id AS assigned
FROM execution_jobs j LEFT JOIN assignments a ON a.job_id = j.id AND a.ended_at IS NULL
WHERE j.run_id = $1 AND j.finished_at IS NULL ORDER BY j.id FOR UPDATE OF j;

-- name: JobDefinition :one
SELECT lock_job, matrix, fanout_index, fanout_total FROM execution_jobs WHERE id = $1;

-- name: HasOpenJob :one
SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM execution_jobs j WHERE j.run_id = r.id AND j.finished_at IS NULL LIMIT 1) AS open_job) AS jobs,
  (SELECT COUNT(*) FROM concurrency_slots s WHERE s.run_id = r.id AND s.state <> 'released') AS slots
FROM execution_runs r WHERE r.id = $1;

-- name: RunOutcomes :many
SELECT id, name, base_name, status, allowed_failure, outputs FROM execution_jobs WHERE run_id = $1 ORDER BY idx;

-- name: RunJobs :many
SELECT id, name, base_name, status, allowed_failure, needs_satisfied, error, outputs, started_at, finished_at
FROM execution_jobs WHERE run_id = $1 ORDER BY idx;

-- name: RunEdges :many
SELECT job_id, needs_id, needs_name, run_on FROM execution_job_needs WHERE run_id = $1;

-- name: WaitingOn :many
SELECT n.job_id, n.run_on, d.base_name FROM execution_job_needs n JOIN execution_jobs d ON d.id = n.job_id
WHERE n.needs_id = $1 AND d.status = 'pending' AND d.needs_satisfied = FALSE ORDER BY d.idx;

-- name: HasOpenNeed :one
SELECT COUNT(*) FROM (
  SELECT 1 FROM execution_job_needs n JOIN execution_jobs u ON u.id = n.needs_id
  WHERE n.job_id = $1 AND u.finished_at IS NULL LIMIT 1
) AS open_needs;

-- name: NeedsOfJob :many
SELECT n.needs_id, n.needs_name, n.run_on, u.name, u.status, u.allowed_failure, u.outputs
FROM execution_job_needs n JOIN execution_jobs u ON u.id = n.needs_id
WHERE n.job_id = $1 ORDER BY u.idx;

-- name: EnqueueJob :execrows
UPDATE execution_jobs SET status = 'queued', needs_satisfied = TRUE, ready_at = COALESCE(ready_at, $2), queued_at = $2, queue_deadline_at = $3,
  labels = $4, exclude_labels = $5, cpu_milli = $6, mem_bytes = $7, cpu_limit_milli = $8, mem_limit_bytes = $9, shape = $10, image = $11
WHERE id = $1 AND ((status = 'pending' AND needs_satisfied = FALSE) OR status = 'held');

-- name: StartJob :execrows
UPDATE execution_jobs SET status = $2, started_at = $3, heartbeat_at = $3, recover_by = NULL, report_seq = $4
WHERE id = $1 AND status = $5 AND attempt = $6 AND started_at IS NULL;

-- name: EndJob :execrows
UPDATE execution_jobs SET status = $2, finished_at = $3, started_at = $4, allowed_failure = $5, error = $6, init_failure = $7,
  kill_method = $8, outputs = $9, report_seq = $10, log_bytes = $13, needs_satisfied = TRUE, recover_by = NULL
WHERE id = $1 AND status = $11 AND attempt = $12;

-- name: MarkJobCancelling :execrows
UPDATE execution_jobs SET status = 'cancelling', cancel_reason = $2, cancel_force = $3, recover_by = NULL
WHERE id = $1 AND status IN ('queued', 'running', 'recovering', 'cancelling');

-- name: MarkJobRecovering :execrows
UPDATE execution_jobs SET status = 'recovering', recover_by = $3
WHERE id = $1 AND attempt = $2 AND status = 'running';

-- name: MarkJobRecovered :execrows
UPDATE execution_jobs SET status = 'running', recover_by = NULL, heartbeat_at = $4
WHERE id = $1 AND attempt = $2 AND agent_id = CAST($3 AS TEXT) AND status = 'recovering';

-- name: BeatJob :execrows
UPDATE execution_jobs SET heartbeat_at = $4
WHERE id = $1 AND attempt = $2 AND agent_id = CAST($3 AS TEXT) AND status IN ('running', 'cancelling');

-- name: RequeueJob :execrows
UPDATE execution_jobs SET agent_id = NULL, dispatch_attempts = dispatch_attempts + $3, report_seq = 0
WHERE id = $1 AND attempt = $2 AND status = 'queued' AND agent_id IS NOT NULL;

-- name: SetReportSeq :execrows
UPDATE execution_jobs SET report_seq = $3, heartbeat_at = $4 WHERE id = $1 AND attempt = $2 AND report_seq < $3;

-- name: EndAssignment :execrows
UPDATE assignments SET state = 'ended', ended_at = $3, end_reason = $4 WHERE job_id = $1 AND attempt = $2 AND ended_at IS NULL;

-- name: AckAssignment :execrows
UPDATE assignments SET state = 'acked', acked_at = $3
WHERE job_id = $1 AND attempt = $2 AND state = 'assigned' AND ended_at IS NULL;

-- name: ReleaseAgent :execrows
UPDATE agents SET jobs_done = jobs_done + 1,
  state_at = CASE WHEN type <> 'static' AND state = 'online' THEN CAST($2 AS BIGINT) ELSE state_at END,
  state = CASE WHEN type <> 'static' AND state = 'online' THEN 'draining' ELSE state END
WHERE id = $1;

-- name: RestAgent :execrows
UPDATE agents SET rest_until = $2 WHERE id = $1;

-- name: UpsertStep :execrows
INSERT INTO execution_steps (job_id, run_id, idx, attempt, name, status, started_at, finished_at, exit_code, error, allowed, retries)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (job_id, idx) DO UPDATE SET attempt = excluded.attempt, name = excluded.name, status = excluded.status,
  started_at = excluded.started_at, finished_at = excluded.finished_at, exit_code = excluded.exit_code, error = excluded.error,
  allowed = excluded.allowed, retries = excluded.retries
WHERE execution_steps.attempt < excluded.attempt
  OR (execution_steps.attempt = excluded.attempt AND execution_steps.status IN ('pending', 'running'));

-- name: CloseSteps :execrows
UPDATE execution_steps SET status = CASE WHEN status = 'running' THEN CAST($2 AS TEXT) ELSE 'skipped' END, finished_at = $3
WHERE job_id = $1 AND status IN ('pending', 'running');

-- name: StepResults :many
SELECT idx, name, status, exit_code, started_at, finished_at, error, allowed FROM execution_steps WHERE job_id = $1 ORDER BY idx;

-- name: InsertLifecycleEvent :one
-- One that no registration waits for at this version of the registry is ended as it is written (EVT-24): nearly all of them are such.
INSERT INTO kici_events (
  id, org_id, event_name, payload, source_repo, source_routing_key, source_run_id, source_job_id, target_repos, chain_depth,
  processed, processed_at, claimed_by, attempts, match_outcome, matched_count, last_error, dlq_reason, created_at, expires_at
)
SELECT CAST(sqlc.arg(id) AS TEXT), CAST(sqlc.arg(org_id) AS TEXT), CAST(sqlc.arg(event_name) AS TEXT), CAST(sqlc.arg(payload) AS TEXT), CAST(sqlc.arg(source_repo) AS TEXT),
  CAST(sqlc.arg(source_routing_key) AS TEXT), CAST(sqlc.arg(source_run_id) AS TEXT), CAST(sqlc.arg(source_job_id) AS TEXT), '[]', CAST(sqlc.arg(chain_depth) AS BIGINT),
  u.unheard, CASE WHEN u.unheard THEN CAST(sqlc.arg(created_at) AS BIGINT) END, '', CASE WHEN u.unheard THEN 1 ELSE 0 END,
  CASE WHEN u.unheard THEN 'no-registration' END, CASE WHEN u.unheard THEN 0 END, '', '', CAST(sqlc.arg(created_at) AS BIGINT), CAST(sqlc.arg(expires_at) AS BIGINT)
FROM (SELECT COALESCE((SELECT version FROM registry_versions WHERE id = 'default'), 0) = CAST(sqlc.arg(unheard_at) AS BIGINT) AS unheard) AS u
RETURNING processed;

-- name: QueueDepth :one
SELECT COUNT(*) FROM (
  SELECT 1 FROM execution_jobs WHERE status = 'queued' AND agent_id IS NULL LIMIT CAST($1 AS BIGINT)
) AS waiting;

-- name: UnsettledRuns :many
SELECT r.id FROM execution_runs r WHERE r.finished_at IS NULL AND r.id > sqlc.arg(after_id) AND (
  (NOT EXISTS (SELECT 1 FROM execution_jobs j WHERE j.run_id = r.id AND j.finished_at IS NULL)
    AND r.created_at < sqlc.arg(created_before))
  OR EXISTS (
    SELECT 1 FROM execution_jobs p WHERE p.run_id = r.id AND p.finished_at IS NULL AND p.status = 'pending' AND p.needs_satisfied = FALSE
      AND NOT EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.run_id = r.id AND s.job_id = '' AND s.begun = FALSE)
      AND (NOT EXISTS (
          SELECT 1 FROM execution_job_needs n JOIN execution_jobs u ON u.id = n.needs_id
          WHERE n.job_id = p.id AND u.finished_at IS NULL)
        OR EXISTS (
          SELECT 1 FROM execution_job_needs n JOIN execution_jobs u ON u.id = n.needs_id
          WHERE n.job_id = p.id AND u.finished_at IS NOT NULL
            AND n.run_on NOT LIKE '%,' || (CASE WHEN u.allowed_failure THEN 'success' ELSE u.status END) || ',%')))
  OR EXISTS (
    SELECT 1 FROM execution_jobs h WHERE h.run_id = r.id AND h.finished_at IS NULL AND h.status = 'held'
      AND NOT EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.run_id = h.run_id AND s.job_id = h.id AND s.state <> 'released')
      AND NOT EXISTS (
        SELECT 1 FROM execution_jobs o WHERE o.run_id = r.id AND o.finished_at IS NULL AND o.base_name = h.base_name
          AND (o.status NOT IN ('pending', 'held', 'waiting') OR o.status = 'held' AND EXISTS (
            SELECT 1 FROM concurrency_slots s WHERE s.run_id = o.run_id AND s.job_id = o.id AND s.state <> 'released'))))
) ORDER BY r.id LIMIT sqlc.arg(max_rows);

-- name: DueRuns :many
-- A run whose jobs all wait for others' groups is not late: held time does not count (PIPE-20), and its deadline moves when it goes on.
SELECT id, deadline_at FROM execution_runs WHERE deadline_at <= CAST($1 AS BIGINT) AND finished_at IS NULL AND deadline_at IS NOT NULL
  AND status IN ('pending', 'running', 'held')
  AND NOT (EXISTS (SELECT 1 FROM execution_jobs h WHERE h.run_id = execution_runs.id AND h.finished_at IS NULL AND h.status = 'held')
    AND NOT EXISTS (SELECT 1 FROM execution_jobs j WHERE j.run_id = execution_runs.id AND j.finished_at IS NULL
      AND j.status NOT IN ('held', 'pending', 'waiting')))
ORDER BY deadline_at LIMIT 200;

-- name: StuckCancellingRuns :many
SELECT id, cancelling_at FROM execution_runs WHERE status = 'cancelling' AND finished_at IS NULL AND cancelling_at <= CAST($1 AS BIGINT)
ORDER BY id LIMIT 200;

-- name: JobAndItsRun :one
SELECT r.id, r.org_id, r.trust_tier, r.number, r.repo, r.workflow, r.actor, r.run_attempt, r.event, r.inputs, j.lock_job, j.matrix
FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id WHERE j.id = $1;
