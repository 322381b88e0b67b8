-- Reads of the dashboard alone (internal/api/read: groups). As in read.sql, an empty argument means "any".

-- name: ReadOpenSlots :many
-- Every place in a concurrency group that is held or waited for. The organisation is compared so that no index has it: that of the
-- open places is the one to use.
SELECT s.routing_key, s.group_key, s.run_id, s.job_id, s.max, s.state, s.created_at, s.activated_at, s.begun, s.wait_until, s.superseded_by,
  r.repo, r.number, r.workflow, r.title, j.name AS job_name, j.display_name AS job_display_name
FROM concurrency_slots s JOIN execution_runs r ON r.id = s.run_id LEFT JOIN execution_jobs j ON j.id = s.job_id
WHERE s.state <> 'released' AND s.org_id || '' = sqlc.arg(org_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR s.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY s.routing_key, s.group_key, s.state, s.created_at, s.id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);

-- name: ReadHeldFanouts :many
-- Jobs that are held by nothing but the window of their fan-out, or by an approval (then it has no row).
SELECT j.run_id, j.base_name, r.repo, r.number, r.workflow, COUNT(*) AS held, CAST(MIN(COALESCE(j.ready_at, j.created_at)) AS BIGINT) AS since,
  CAST(COALESCE(MAX(f.max_parallel), 0) AS BIGINT) AS max_parallel
FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id
LEFT JOIN fanouts f ON f.run_id = j.run_id AND f.base_name = j.base_name
WHERE j.status = 'held' AND j.finished_at IS NULL AND j.org_id || '' = sqlc.arg(org_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
  AND NOT EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.run_id = j.run_id AND s.job_id = j.id AND s.state <> 'released')
GROUP BY j.run_id, j.base_name, r.repo, r.number, r.workflow
ORDER BY since, j.run_id, j.base_name LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);
