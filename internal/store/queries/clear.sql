-- Clearing the queue and what stands still (QUE-20, internal/run).

-- name: ClearableRuns :many
-- Runs that have a job in the queue, or wait for their concurrency group.
SELECT r.id, (SELECT COUNT(*) FROM execution_jobs w WHERE w.run_id = r.id AND w.status = 'queued' AND w.agent_id IS NULL) AS waiting,
  (SELECT COUNT(*) FROM execution_jobs o WHERE o.run_id = r.id AND o.finished_at IS NULL) AS open_jobs,
  (SELECT COUNT(*) FROM execution_jobs b WHERE b.run_id = r.id AND b.finished_at IS NULL AND (b.started_at IS NOT NULL OR b.agent_id IS NOT NULL)) AS begun
FROM execution_runs r
WHERE r.finished_at IS NULL AND r.status IN ('pending', 'running') AND r.org_id || '' = sqlc.arg(org_id) AND r.id > sqlc.arg(after_id)
  AND (EXISTS (SELECT 1 FROM execution_jobs j WHERE j.run_id = r.id AND j.finished_at IS NULL AND j.status = 'queued' AND j.agent_id IS NULL)
    OR EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.run_id = r.id AND s.job_id = '' AND s.begun = FALSE AND s.state <> 'released'))
ORDER BY r.id LIMIT 200;

-- name: StandingRuns :many
-- Open runs of which nothing has been heard since an instant.
SELECT r.id, r.repo, r.number, r.workflow, r.status, r.created_at FROM execution_runs r
WHERE r.finished_at IS NULL AND r.status IN ('pending', 'running', 'held', 'cancelling') AND r.org_id || '' = sqlc.arg(org_id) AND r.id > sqlc.arg(after_id)
  AND r.created_at < sqlc.arg(before) AND NOT EXISTS (
    SELECT 1 FROM execution_jobs j WHERE j.run_id = r.id
      AND (j.queued_at >= sqlc.arg(before) OR j.started_at >= sqlc.arg(before) OR j.heartbeat_at >= sqlc.arg(before) OR j.finished_at >= sqlc.arg(before)))
ORDER BY r.id LIMIT 200;

-- name: QueuedByLabels :many
SELECT labels, COUNT(*) AS jobs FROM execution_jobs WHERE status = 'queued' AND agent_id IS NULL GROUP BY labels;
