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
