-- Schedules (CRN-*): when each is due next, and what it was due for last. A row is written by the registration that it belongs
-- to, and by the leader when it fires.

-- name: SchedulesOfRegistration :many
SELECT * FROM schedules WHERE registration_id = $1 ORDER BY expression, timezone;

-- name: SeedSchedule :exec
-- A schedule begins now: it never fires for an instant before it existed (CRN-5). One that is there keeps its history.
INSERT INTO schedules (registration_id, expression, timezone, org_id, last_fired_at, next_at, last_event_id, error)
VALUES ($1, $2, $3, $4, $5, $6, '', $7)
ON CONFLICT (registration_id, expression, timezone) DO NOTHING;

-- name: ReseedSchedule :execrows
-- What it missed while it was disabled is not made up (CRN-6).
UPDATE schedules SET last_fired_at = sqlc.arg(now), next_at = sqlc.arg(next_at), error = sqlc.arg(error)
WHERE registration_id = sqlc.arg(registration_id) AND expression = sqlc.arg(expression) AND timezone = sqlc.arg(timezone);

-- name: SetScheduleNext :execrows
UPDATE schedules SET next_at = sqlc.arg(next_at), error = sqlc.arg(error)
WHERE registration_id = sqlc.arg(registration_id) AND expression = sqlc.arg(expression) AND timezone = sqlc.arg(timezone)
  AND last_fired_at = sqlc.arg(last_fired_at);

-- name: PauseSchedules :execrows
UPDATE schedules SET next_at = NULL WHERE registration_id = $1;

-- name: DropSchedule :execrows
DELETE FROM schedules WHERE registration_id = $1 AND expression = $2 AND timezone = $3;

-- name: NextScheduleAt :many
SELECT CAST(s.next_at AS BIGINT) AS due_at FROM schedules s WHERE s.next_at IS NOT NULL ORDER BY s.next_at LIMIT 1;

-- name: DueSchedules :many
SELECT s.registration_id, s.expression, s.timezone, s.org_id, s.last_fired_at, s.next_at,
  r.routing_key, r.repo, r.workflow, r.commit_sha, r.source_file, r.disabled
FROM schedules s JOIN workflow_registrations r ON r.id = s.registration_id
WHERE s.next_at IS NOT NULL AND s.next_at <= CAST(sqlc.arg(now) AS BIGINT)
ORDER BY s.next_at, s.registration_id, s.expression, s.timezone LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);

-- name: ClaimSchedule :execrows
-- Takes an instant unless it, or a later one, has been taken (CRN-3, CRN-8).
UPDATE schedules SET last_fired_at = sqlc.arg(instant), next_at = sqlc.arg(next_at), error = ''
WHERE registration_id = sqlc.arg(registration_id) AND expression = sqlc.arg(expression) AND timezone = sqlc.arg(timezone)
  AND last_fired_at < sqlc.arg(instant);

-- name: SetScheduleEvent :execrows
UPDATE schedules SET last_event_id = sqlc.arg(event_id)
WHERE registration_id = sqlc.arg(registration_id) AND expression = sqlc.arg(expression) AND timezone = sqlc.arg(timezone)
  AND last_fired_at = sqlc.arg(instant);

-- name: SchedulesAfter :many
-- A page of all schedules, for the look at every one of them that a new leader takes.
SELECT s.registration_id, s.expression, s.timezone, s.last_fired_at, s.next_at, s.error, r.disabled
FROM schedules s JOIN workflow_registrations r ON r.id = s.registration_id
WHERE (s.registration_id, s.expression, s.timezone) > (CAST(sqlc.arg(after_id) AS TEXT), CAST(sqlc.arg(after_expression) AS TEXT), CAST(sqlc.arg(after_timezone) AS TEXT))
ORDER BY s.registration_id, s.expression, s.timezone LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);

-- name: UnseededRegistrations :many
-- Registrations with a schedule and without its row: of a version that knew no schedules.
SELECT r.* FROM workflow_registrations r
WHERE r.trigger_types LIKE '%,schedule,%' AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.registration_id = r.id)
  AND r.id > CAST(sqlc.arg(after_id) AS TEXT)
ORDER BY r.id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);

-- name: ReadRegistrations :many
-- Without the lock entry, which is wide. Filters that are empty do not count; enabled is '', 'true' or 'false'.
SELECT r.id, r.routing_key, r.repo, r.workflow, r.trigger_types, r.commit_sha, r.default_branch, r.source_file, r.disabled, r.is_global,
  r.synced_at, s.name AS source_name
FROM workflow_registrations r LEFT JOIN sources s ON s.routing_key = r.routing_key AND s.deleted_at IS NULL
WHERE r.org_id = sqlc.arg(org_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = sqlc.arg(routing_key))
  AND (CAST(sqlc.arg(repo) AS TEXT) = '' OR r.repo = sqlc.arg(repo))
  AND (CAST(sqlc.arg(workflow) AS TEXT) = '' OR r.workflow = sqlc.arg(workflow))
  AND (CAST(sqlc.arg(trigger_like) AS TEXT) = '' OR r.trigger_types LIKE sqlc.arg(trigger_like))
  AND (CAST(sqlc.arg(disabled) AS TEXT) = '' OR (r.disabled = TRUE AND sqlc.arg(disabled) = 'true') OR (r.disabled = FALSE AND sqlc.arg(disabled) = 'false'))
  AND (CAST(sqlc.arg(only_global) AS BOOLEAN) = FALSE OR r.is_global = TRUE)
  AND (r.repo, r.workflow, r.id) > (CAST(sqlc.arg(after_repo) AS TEXT), CAST(sqlc.arg(after_workflow) AS TEXT), CAST(sqlc.arg(after_id) AS TEXT))
ORDER BY r.repo, r.workflow, r.id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);

-- name: CountRegistrations :one
SELECT COUNT(*) FROM workflow_registrations r
WHERE r.org_id = sqlc.arg(org_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = sqlc.arg(routing_key))
  AND (CAST(sqlc.arg(repo) AS TEXT) = '' OR r.repo = sqlc.arg(repo))
  AND (CAST(sqlc.arg(workflow) AS TEXT) = '' OR r.workflow = sqlc.arg(workflow))
  AND (CAST(sqlc.arg(trigger_like) AS TEXT) = '' OR r.trigger_types LIKE sqlc.arg(trigger_like))
  AND (CAST(sqlc.arg(disabled) AS TEXT) = '' OR (r.disabled = TRUE AND sqlc.arg(disabled) = 'true') OR (r.disabled = FALSE AND sqlc.arg(disabled) = 'false'))
  AND (CAST(sqlc.arg(only_global) AS BOOLEAN) = FALSE OR r.is_global = TRUE);

-- name: ReadRegistration :many
-- By id, by repository#workflow, or by a workflow's name that only one has.
SELECT r.id, r.routing_key, r.repo, r.workflow, r.trigger_types, r.commit_sha, r.default_branch, r.source_file, r.disabled, r.is_global,
  r.synced_at, s.name AS source_name, r.lock_entry
FROM workflow_registrations r LEFT JOIN sources s ON s.routing_key = r.routing_key AND s.deleted_at IS NULL
WHERE r.org_id = sqlc.arg(org_id) AND (r.id = sqlc.arg(ref) OR r.workflow = sqlc.arg(ref) OR r.repo || '#' || r.workflow = sqlc.arg(ref))
ORDER BY r.repo, r.id LIMIT 20;

-- name: ReadSchedules :many
-- With the run that the last fire started, once it is there.
SELECT s.registration_id, s.expression, s.timezone, s.last_fired_at, s.next_at, s.last_event_id, s.error,
  r.routing_key, r.repo, r.workflow, r.disabled, e.run_id AS last_run_id
FROM schedules s JOIN workflow_registrations r ON r.id = s.registration_id
  LEFT JOIN event_runs e ON e.event_id = s.last_event_id AND e.registration_id = s.registration_id
WHERE s.org_id = sqlc.arg(org_id)
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR r.routing_key = sqlc.arg(routing_key))
  AND (CAST(sqlc.arg(repo) AS TEXT) = '' OR r.repo = sqlc.arg(repo))
  AND (CAST(sqlc.arg(workflow) AS TEXT) = '' OR r.workflow = sqlc.arg(workflow))
  AND (CAST(sqlc.arg(registration_id) AS TEXT) = '' OR s.registration_id = sqlc.arg(registration_id))
  AND (r.repo, r.workflow, s.registration_id, s.expression, s.timezone) > (CAST(sqlc.arg(after_repo) AS TEXT), CAST(sqlc.arg(after_workflow) AS TEXT),
    CAST(sqlc.arg(after_id) AS TEXT), CAST(sqlc.arg(after_expression) AS TEXT), CAST(sqlc.arg(after_timezone) AS TEXT))
ORDER BY r.repo, r.workflow, s.registration_id, s.expression, s.timezone LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);
