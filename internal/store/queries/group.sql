-- Concurrency groups, waves, and jobs that a step added (internal/run). A group is decided about only while its row is locked; the
-- owner's run is locked before it, never after.

-- name: LockGroup :exec
INSERT INTO concurrency_groups (org_id, routing_key, group_key) VALUES ($1, $2, $3)
ON CONFLICT (org_id, routing_key, group_key) DO UPDATE SET group_key = excluded.group_key;

-- name: IdleGroup :many
-- One at most.
SELECT g.group_key FROM concurrency_groups g WHERE NOT EXISTS (
  SELECT 1 FROM concurrency_slots s WHERE s.org_id = g.org_id AND s.routing_key = g.routing_key AND s.group_key = g.group_key AND s.state <> 'released')
LIMIT 1;

-- name: DropIdleGroups :execrows
-- The row is only what is locked; who locks it makes it again. Names are authors' and may be as many as branches.
DELETE FROM concurrency_groups WHERE NOT EXISTS (
  SELECT 1 FROM concurrency_slots s WHERE s.org_id = concurrency_groups.org_id AND s.routing_key = concurrency_groups.routing_key
    AND s.group_key = concurrency_groups.group_key AND s.state <> 'released');

-- name: GroupSlots :many
-- Those that hold a place, then those that wait for one and may still get it, each oldest first.
SELECT s.id, s.run_id, s.job_id, s.max, s.state, s.superseded_by, r.number, r.status AS run_status, r.finished_at AS run_finished_at,
  j.name AS job_name, j.status AS job_status, j.finished_at AS job_finished_at
FROM concurrency_slots s JOIN execution_runs r ON r.id = s.run_id LEFT JOIN execution_jobs j ON j.id = s.job_id
WHERE s.org_id = sqlc.arg(org_id) AND s.routing_key = sqlc.arg(routing_key) AND s.group_key = sqlc.arg(group_key)
  AND s.state IN ('active', 'queued') AND (s.state = 'active' OR s.superseded_by = '')
ORDER BY s.state, s.created_at, s.id LIMIT 2000;

-- name: InsertSlot :exec
INSERT INTO concurrency_slots (id, org_id, routing_key, group_key, run_id, job_id, max, state, created_at, activated_at, begun, wait_until, superseded_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, '');

-- name: SlotOf :one
SELECT * FROM concurrency_slots WHERE run_id = $1 AND job_id = $2;

-- name: OpenSlotsOfRun :many
SELECT * FROM concurrency_slots WHERE run_id = $1 AND state <> 'released' ORDER BY group_key, id;

-- name: SupersedeSlot :execrows
UPDATE concurrency_slots SET superseded_by = $2 WHERE id = $1 AND state <> 'released' AND superseded_by = '';

-- name: SupersedeWaiting :execrows
UPDATE concurrency_slots SET superseded_by = sqlc.arg(superseded_by)
WHERE org_id = sqlc.arg(org_id) AND routing_key = sqlc.arg(routing_key) AND group_key = sqlc.arg(group_key) AND state = 'queued' AND superseded_by = '';

-- name: PromoteSlot :execrows
UPDATE concurrency_slots SET state = 'active', activated_at = $2, begun = FALSE WHERE id = $1 AND state = 'queued';

-- name: BeginSlot :execrows
UPDATE concurrency_slots SET begun = TRUE WHERE id = $1 AND state = 'active' AND begun = FALSE;

-- name: ReleaseSlot :execrows
UPDATE concurrency_slots SET state = 'released', begun = TRUE WHERE id = $1 AND state <> 'released';

-- name: PromotedSlots :many
SELECT run_id, job_id FROM concurrency_slots WHERE state = 'active' AND begun = FALSE ORDER BY id LIMIT 500;

-- name: SupersededSlots :many
-- Those that are being ended already are left alone.
SELECT s.run_id, s.job_id FROM concurrency_slots s JOIN execution_runs r ON r.id = s.run_id LEFT JOIN execution_jobs j ON j.id = s.job_id
WHERE s.superseded_by <> '' AND s.state <> 'released' AND r.status <> 'cancelling' AND (j.status IS NULL OR j.status <> 'cancelling')
ORDER BY s.id LIMIT 500;

-- name: OverdueSlots :many
SELECT run_id, job_id FROM concurrency_slots WHERE state = 'queued' AND begun = FALSE AND wait_until <= CAST($1 AS BIGINT) ORDER BY wait_until LIMIT 500;

-- name: OwnerlessSlots :many
-- Slots whose owner has ended (CON-3).
SELECT s.run_id, s.job_id FROM concurrency_slots s JOIN execution_runs r ON r.id = s.run_id LEFT JOIN execution_jobs j ON j.id = s.job_id
WHERE s.state <> 'released' AND (r.finished_at IS NOT NULL OR j.finished_at IS NOT NULL) ORDER BY s.id LIMIT 500;

-- name: StandingGroups :many
-- Groups in which somebody waits although nobody holds a place.
SELECT DISTINCT w.org_id, w.routing_key, w.group_key FROM concurrency_slots w
WHERE w.state = 'queued' AND w.begun = FALSE AND w.superseded_by = '' AND NOT EXISTS (
  SELECT 1 FROM concurrency_slots a WHERE a.org_id = w.org_id AND a.routing_key = w.routing_key AND a.group_key = w.group_key AND a.state = 'active')
LIMIT 500;

-- name: SetRunDeadline :execrows
UPDATE execution_runs SET deadline_at = $2 WHERE id = $1 AND finished_at IS NULL;

-- name: RunActivity :one
-- How many jobs of a run are on their way, and when the last one ended.
SELECT CAST(COALESCE(SUM(CASE WHEN finished_at IS NULL AND status NOT IN ('pending', 'held', 'waiting') THEN 1 ELSE 0 END), 0) AS BIGINT) AS active,
  CAST(COALESCE(MAX(finished_at), 0) AS BIGINT) AS last_finished
FROM execution_jobs WHERE run_id = $1;

-- name: HoldJob :execrows
UPDATE execution_jobs SET status = 'held', needs_satisfied = TRUE, ready_at = $2 WHERE id = $1 AND status = 'pending' AND needs_satisfied = FALSE;

-- name: InsertFanout :exec
INSERT INTO fanouts (run_id, base_name, max_parallel, fail_fast) VALUES ($1, $2, $3, $4);

-- name: FanoutOf :one
SELECT max_parallel, fail_fast FROM fanouts WHERE run_id = $1 AND base_name = $2;

-- name: FanoutsOfRun :many
SELECT base_name, max_parallel, fail_fast FROM fanouts WHERE run_id = $1 ORDER BY base_name;

-- name: FanoutInFlight :one
-- Children that are let through the window and have not ended. One that waits for a concurrency group is.
SELECT COUNT(*) FROM execution_jobs j WHERE j.run_id = $1 AND j.base_name = $2 AND j.finished_at IS NULL
  AND (j.status NOT IN ('pending', 'held', 'waiting') OR j.status = 'held' AND EXISTS (
    SELECT 1 FROM concurrency_slots s WHERE s.run_id = j.run_id AND s.job_id = j.id AND s.state <> 'released'));

-- name: FanoutHeld :many
SELECT j.id FROM execution_jobs j WHERE j.run_id = $1 AND j.base_name = $2 AND j.finished_at IS NULL AND j.status = 'held'
  AND NOT EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.run_id = j.run_id AND s.job_id = j.id AND s.state <> 'released')
ORDER BY j.fanout_index, j.idx;

-- name: JobAddition :one
SELECT jobs FROM job_additions WHERE by_job_id = $1 AND request_id = $2;

-- name: InsertJobAddition :exec
INSERT INTO job_additions (run_id, by_job_id, request_id, jobs, at) VALUES ($1, $2, $3, $4, $5);

-- name: JobAdditionsOfRun :many
SELECT by_job_id, jobs FROM job_additions WHERE run_id = $1 ORDER BY at, by_job_id, request_id;

-- name: RunJobNames :many
SELECT id, idx, name, base_name FROM execution_jobs WHERE run_id = $1 ORDER BY idx;

-- name: ReadHolds :many
-- Places of a run and its jobs whose owner has not gone on.
SELECT id, org_id, routing_key, group_key, job_id, state, created_at, wait_until, superseded_by FROM concurrency_slots
WHERE run_id = $1 AND begun = FALSE AND state <> 'released';

-- name: ReadGroup :many
-- Those that hold a place, then those that wait for one, each oldest first.
SELECT s.id, s.run_id, s.job_id, s.state, s.superseded_by, r.repo, r.number, j.name AS job_name
FROM concurrency_slots s JOIN execution_runs r ON r.id = s.run_id LEFT JOIN execution_jobs j ON j.id = s.job_id
WHERE s.org_id = sqlc.arg(org_id) AND s.routing_key = sqlc.arg(routing_key) AND s.group_key = sqlc.arg(group_key) AND s.state IN ('active', 'queued')
ORDER BY s.state, s.created_at, s.id LIMIT 1000;
