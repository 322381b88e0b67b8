-- Internal events: emitting, leasing, routing, dead letters, trust, failure batches (EVT-*).

-- name: InsertEvent :exec
INSERT INTO kici_events (
  id, org_id, event_name, payload, source_repo, source_routing_key, source_run_id, source_job_id, target_repos, chain_depth,
  processed, claimed_by, attempts, last_error, dlq_reason, created_at, expires_at, emitter, registration_id, buffered, actor, request_key
) VALUES (
  sqlc.arg(id), sqlc.arg(org_id), sqlc.arg(event_name), sqlc.arg(payload), sqlc.arg(source_repo), sqlc.arg(source_routing_key),
  sqlc.arg(source_run_id), sqlc.arg(source_job_id), sqlc.arg(target_repos), sqlc.arg(chain_depth),
  FALSE, '', 0, '', '', sqlc.arg(created_at), sqlc.arg(expires_at), sqlc.arg(emitter), sqlc.arg(registration_id), FALSE,
  sqlc.arg(actor), sqlc.narg(request_key));

-- name: EventByRequest :one
SELECT id FROM kici_events WHERE source_job_id = $1 AND request_key = $2;

-- name: EmittingJob :one
-- What the orchestrator knows of a job that wants to emit (EVT-3). The share lock keeps its end waiting until the event is there.
SELECT j.id, j.agent_id, j.attempt, j.finished_at, j.run_id, r.org_id, r.repo, r.routing_key, r.chain_depth
FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id WHERE j.id = $1 FOR SHARE OF j;

-- name: OpenEventKinds :many
-- What the oldest due events are, so that those that nobody waits for need not be taken one by one.
SELECT w.org_id, w.event_name, COUNT(*) AS waiting FROM (
  SELECT e.org_id, e.event_name FROM kici_events e
  WHERE e.processed = FALSE AND e.dlq_at IS NULL AND e.claimed_at IS NULL AND e.expires_at > sqlc.arg(now)
    AND (e.next_retry_at IS NULL OR e.next_retry_at <= sqlc.arg(now)) AND e.attempts < sqlc.arg(max_attempts)
  ORDER BY e.created_at, e.id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER)
) AS w GROUP BY w.org_id, w.event_name ORDER BY w.org_id, w.event_name;

-- name: SweepEvents :execrows
-- Takes and ends at once the fresh events of a kind that no registration waits for (EVT-24).
UPDATE kici_events SET processed = TRUE, processed_at = sqlc.arg(processed_at), attempts = 1, match_outcome = 'no-registration', matched_count = 0
WHERE id IN (
  SELECT e.id FROM kici_events e
  WHERE e.processed = FALSE AND e.dlq_at IS NULL AND e.claimed_at IS NULL AND e.next_retry_at IS NULL AND e.attempts = 0
    AND e.org_id = sqlc.arg(org_id) AND e.event_name = sqlc.arg(event_name)
  ORDER BY e.created_at, e.id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER)
  FOR UPDATE SKIP LOCKED);

-- name: ClaimEvents :many
-- Leases due events (EVT-11).
UPDATE kici_events SET claimed_at = sqlc.arg(now), claimed_by = sqlc.arg(claimed_by), attempts = attempts + 1
WHERE id IN (
  SELECT e.id FROM kici_events e
  WHERE e.processed = FALSE AND e.dlq_at IS NULL AND e.claimed_at IS NULL AND e.expires_at > CAST(sqlc.arg(now) AS BIGINT)
    AND (e.next_retry_at IS NULL OR e.next_retry_at <= CAST(sqlc.arg(now) AS BIGINT)) AND e.attempts < sqlc.arg(max_attempts)
  ORDER BY e.created_at, e.id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER)
  FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: ReleaseExpiredLeases :execrows
-- Frees what a holder that died or hangs has leased (XC-34). What has no attempt left is the dead letters' (EVT-14).
UPDATE kici_events SET claimed_at = NULL, claimed_by = ''
WHERE claimed_at IS NOT NULL AND claimed_at <= sqlc.arg(cutoff) AND processed = FALSE AND dlq_at IS NULL
  AND attempts < sqlc.arg(max_attempts);

-- name: ReleaseOwnLeases :execrows
-- Frees what an earlier process of this instance had leased: it is dead, its data directory was locked by it.
UPDATE kici_events SET claimed_at = NULL, claimed_by = ''
WHERE claimed_at IS NOT NULL AND claimed_by = sqlc.arg(claimed_by) AND processed = FALSE AND dlq_at IS NULL
  AND attempts < sqlc.arg(max_attempts);

-- name: HoldEvent :one
-- Locks a leased event; there is no row when the lease is another's by now (EVT-12).
SELECT buffered FROM kici_events
WHERE id = $1 AND claimed_by = $2 AND attempts = $3 AND claimed_at IS NOT NULL AND processed = FALSE AND dlq_at IS NULL FOR UPDATE;

-- name: GiveBackEvent :execrows
-- Returns a lease that nothing was done with; the attempt does not count.
UPDATE kici_events SET claimed_at = NULL, claimed_by = '', attempts = attempts - 1
WHERE id = $1 AND claimed_by = $2 AND attempts = $3 AND claimed_at IS NOT NULL AND processed = FALSE AND dlq_at IS NULL;

-- name: FinishEvent :execrows
UPDATE kici_events SET processed = TRUE, processed_at = sqlc.arg(processed_at), claimed_at = NULL, claimed_by = '', next_retry_at = NULL,
  last_error = '', match_outcome = sqlc.arg(match_outcome), matched_count = sqlc.arg(matched_count)
WHERE id = sqlc.arg(id) AND claimed_by = sqlc.arg(claimed_by) AND attempts = sqlc.arg(attempt) AND claimed_at IS NOT NULL
  AND processed = FALSE AND dlq_at IS NULL;

-- name: FailEvent :execrows
UPDATE kici_events SET claimed_at = NULL, claimed_by = '', last_error = sqlc.arg(last_error), next_retry_at = sqlc.narg(next_retry_at),
  dlq_at = sqlc.narg(dlq_at), dlq_reason = sqlc.arg(dlq_reason), matched_count = sqlc.narg(matched_count)
WHERE id = sqlc.arg(id) AND claimed_by = sqlc.arg(claimed_by) AND attempts = sqlc.arg(attempt) AND claimed_at IS NOT NULL
  AND processed = FALSE AND dlq_at IS NULL;

-- name: MarkBuffered :exec
UPDATE kici_events SET buffered = TRUE WHERE id = $1;

-- name: DeadLetterExhausted :many
-- An event whose holders all died without a word, or whose maximum was lowered (EVT-14, XC-36).
UPDATE kici_events SET claimed_at = NULL, claimed_by = '', dlq_at = sqlc.arg(now), dlq_reason = 'exhausted_retries',
  last_error = CASE WHEN last_error = '' THEN 'no server that took this event finished it: each stopped or hung while it worked on it' ELSE last_error END
WHERE id IN (
  SELECT e.id FROM kici_events e
  WHERE e.processed = FALSE AND e.dlq_at IS NULL AND e.attempts >= sqlc.arg(max_attempts)
    AND (e.claimed_at IS NULL OR e.claimed_at <= sqlc.arg(cutoff))
  ORDER BY e.created_at, e.id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER)
  FOR UPDATE SKIP LOCKED)
RETURNING id, event_name, attempts;

-- name: LateEvents :one
-- Whether some event waits that somebody should have taken: a lost notification, or a retry that is due (EVT-14, EVT-15).
SELECT COUNT(*) FROM (
  SELECT 1 FROM kici_events e
  WHERE e.processed = FALSE AND e.dlq_at IS NULL AND e.claimed_at IS NULL AND e.expires_at > sqlc.arg(now)
    AND (e.next_retry_at <= sqlc.arg(now) OR e.next_retry_at IS NULL AND e.created_at <= sqlc.arg(lost))
  LIMIT CAST(sqlc.arg(max_rows) AS INTEGER)
) AS late;

-- name: EventTargets :many
SELECT registration_id, run_id FROM event_runs WHERE event_id = $1 ORDER BY registration_id;

-- name: InsertEventRun :execrows
INSERT INTO event_runs (event_id, registration_id, run_id) VALUES ($1, $2, $3) ON CONFLICT (event_id, registration_id) DO NOTHING;

-- name: CountEventTargets :one
SELECT COUNT(*) FROM event_runs WHERE event_id = $1;

-- name: RegistrationLive :one
-- Whether a registration still is there and on (XC-29).
SELECT COUNT(*) FROM workflow_registrations WHERE id = $1 AND disabled = FALSE;

-- name: RegistrationHome :one
SELECT org_id, routing_key, repo, workflow FROM workflow_registrations WHERE id = $1;

-- name: RunOrigin :one
-- What a run hands on to those that its events start (EVT-23, EVT-28).
SELECT trust_tier, branch, chain_depth, trigger_event, actor, event FROM execution_runs WHERE id = $1;

-- name: RunTier :one
SELECT trust_tier FROM execution_runs WHERE id = $1;

-- name: TrustBySource :many
SELECT * FROM cross_repo_trust
WHERE org_id = $1 AND source_routing_key = $2 AND source_repo = $3 AND enabled = TRUE ORDER BY id;

-- name: InsertTrust :execrows
INSERT INTO cross_repo_trust (id, org_id, source_routing_key, source_repo, target_routing_key, target_repo, event_names, enabled, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, TRUE, $8, $9)
ON CONFLICT (org_id, source_routing_key, source_repo, target_routing_key, target_repo) DO NOTHING;

-- name: TrustByPair :one
SELECT * FROM cross_repo_trust
WHERE org_id = $1 AND source_routing_key = $2 AND source_repo = $3 AND target_routing_key = $4 AND target_repo = $5 FOR UPDATE;

-- name: SetTrust :execrows
UPDATE cross_repo_trust SET event_names = sqlc.narg(event_names), enabled = TRUE WHERE id = sqlc.arg(id);

-- name: TrustByID :one
SELECT * FROM cross_repo_trust WHERE org_id = $1 AND id = $2;

-- name: TrustOfOrg :many
SELECT * FROM cross_repo_trust
WHERE org_id = sqlc.arg(org_id) AND (CAST(sqlc.arg(routing_key) AS TEXT) = ''
  OR source_routing_key = CAST(sqlc.arg(routing_key) AS TEXT) OR target_routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY source_repo, target_repo, id;

-- name: DeleteTrust :execrows
DELETE FROM cross_repo_trust WHERE org_id = $1 AND id = $2;

-- name: OpenFailureBatch :one
-- The registration's open window, made by the first failure (EVT-27). The row is locked against its closing.
INSERT INTO failure_batches (id, org_id, registration_id, opened_at, closes_at)
VALUES (sqlc.arg(id), sqlc.arg(org_id), sqlc.arg(registration_id), sqlc.arg(opened_at), sqlc.arg(closes_at))
ON CONFLICT (registration_id) DO UPDATE SET org_id = excluded.org_id
RETURNING id;

-- name: AddFailure :execrows
INSERT INTO failure_batch_items (batch_id, run_id, event_id, added_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (batch_id, run_id) DO NOTHING;

-- name: DueFailureBatches :many
SELECT id, org_id, registration_id FROM failure_batches WHERE closes_at <= sqlc.arg(now)
ORDER BY closes_at, id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER) FOR UPDATE SKIP LOCKED;

-- name: CountFailures :one
SELECT COUNT(*) FROM failure_batch_items WHERE batch_id = $1;

-- name: ListFailures :many
SELECT i.run_id, r.repo, r.workflow, r.failure_class, r.actor, r.chain_depth
FROM failure_batch_items i JOIN execution_runs r ON r.id = i.run_id
WHERE i.batch_id = $1 ORDER BY r.finished_at, i.run_id LIMIT CAST($2 AS INTEGER);

-- name: DeleteFailures :exec
DELETE FROM failure_batch_items WHERE batch_id = $1;

-- name: DeleteFailureBatch :execrows
DELETE FROM failure_batches WHERE id = $1;

-- name: DeleteExpiredEvents :many
-- Dead letters stay until somebody decides (EVT-19).
DELETE FROM kici_events WHERE id IN (
  SELECT e.id FROM kici_events e WHERE e.expires_at <= sqlc.arg(now) AND e.dlq_at IS NULL
  ORDER BY e.expires_at LIMIT CAST(sqlc.arg(max_rows) AS INTEGER))
RETURNING id, event_name, processed, created_at;

-- name: RetryDeadLetter :execrows
UPDATE kici_events SET dlq_at = NULL, dlq_reason = '', attempts = 0, claimed_at = NULL, claimed_by = '', next_retry_at = sqlc.arg(now),
  expires_at = sqlc.arg(expires_at)
WHERE org_id = sqlc.arg(org_id) AND id = sqlc.arg(id) AND dlq_at IS NOT NULL;

-- name: DiscardDeadLetter :execrows
DELETE FROM kici_events WHERE org_id = $1 AND id = $2 AND dlq_at IS NOT NULL;

-- name: CountDeadLetters :one
SELECT COUNT(*) FROM kici_events WHERE dlq_at IS NOT NULL;

-- name: ReadEvents :many
SELECT e.id, e.event_name, e.source_repo, e.source_routing_key, e.source_run_id, e.source_job_id, e.target_repos, e.chain_depth, e.processed,
  e.claimed_at, e.claimed_by, e.attempts, e.next_retry_at, e.last_error, e.dlq_at, e.dlq_reason, e.match_outcome, e.matched_count,
  e.created_at, e.expires_at, e.emitter, e.registration_id, e.processed_at, e.buffered, e.actor, s.name AS source_name
FROM kici_events e LEFT JOIN sources s ON s.routing_key = e.source_routing_key
WHERE e.org_id = sqlc.arg(org_id)
  AND (e.created_at, e.id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  AND (e.created_at, e.id) >= (CAST(sqlc.arg(floor_at) AS BIGINT), CAST(sqlc.arg(floor_id) AS TEXT))
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR e.source_routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
  AND (CAST(sqlc.arg(name) AS TEXT) = '' OR e.event_name = CAST(sqlc.arg(name) AS TEXT))
  AND (CAST(sqlc.arg(outcome) AS TEXT) = '' OR e.match_outcome = CAST(sqlc.arg(outcome) AS TEXT))
  AND (CAST(sqlc.arg(not_emitter) AS TEXT) = '' OR e.emitter <> CAST(sqlc.arg(not_emitter) AS TEXT))
ORDER BY e.created_at DESC, e.id DESC
LIMIT sqlc.arg(max_rows);

-- name: ReadEventsFloor :one
-- As ReadRunsFloor.
SELECT w.created_at, w.id FROM (
  SELECT e.created_at, e.id FROM kici_events e
  WHERE e.org_id = sqlc.arg(org_id)
    AND (e.created_at, e.id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  ORDER BY e.created_at DESC, e.id DESC LIMIT sqlc.arg(max_rows)
) AS w ORDER BY w.created_at, w.id LIMIT 1;

-- name: ReadDeadLetters :many
SELECT e.id, e.event_name, e.source_repo, e.source_routing_key, e.source_run_id, e.source_job_id, e.target_repos, e.chain_depth, e.processed,
  e.claimed_at, e.claimed_by, e.attempts, e.next_retry_at, e.last_error, e.dlq_at, e.dlq_reason, e.match_outcome, e.matched_count,
  e.created_at, e.expires_at, e.emitter, e.registration_id, e.processed_at, e.buffered, e.actor, s.name AS source_name
FROM kici_events e LEFT JOIN sources s ON s.routing_key = e.source_routing_key
WHERE e.org_id = sqlc.arg(org_id) AND e.dlq_at IS NOT NULL
  AND (e.dlq_at, e.id) < (CAST(sqlc.arg(before_at) AS BIGINT), CAST(sqlc.arg(before_id) AS TEXT))
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR e.source_routing_key = CAST(sqlc.arg(routing_key) AS TEXT))
ORDER BY e.dlq_at DESC, e.id DESC
LIMIT sqlc.arg(max_rows);

-- name: ReadDeadLetterCount :one
SELECT COUNT(*) FROM kici_events WHERE org_id = sqlc.arg(org_id) AND dlq_at IS NOT NULL
  AND (CAST(sqlc.arg(routing_key) AS TEXT) = '' OR source_routing_key = CAST(sqlc.arg(routing_key) AS TEXT));

-- name: ReadEvent :many
SELECT e.id, e.event_name, e.source_repo, e.source_routing_key, e.source_run_id, e.source_job_id, e.target_repos, e.chain_depth, e.processed,
  e.claimed_at, e.claimed_by, e.attempts, e.next_retry_at, e.last_error, e.dlq_at, e.dlq_reason, e.match_outcome, e.matched_count,
  e.created_at, e.expires_at, e.emitter, e.registration_id, e.processed_at, e.buffered, e.actor, s.name AS source_name
FROM kici_events e LEFT JOIN sources s ON s.routing_key = e.source_routing_key
WHERE e.org_id = $1 AND e.id = $2;

-- name: ReadEventPayload :one
SELECT payload FROM kici_events WHERE id = $1;

-- name: ReadEventRuns :many
SELECT t.registration_id, t.run_id, r.number, r.repo, r.workflow, r.status, r.routing_key, r.created_at, r.failure_reason
FROM event_runs t JOIN execution_runs r ON r.id = t.run_id
WHERE t.event_id = $1 ORDER BY r.created_at, r.id;

-- name: ExpiredLeases :one
SELECT COUNT(*) FROM kici_events WHERE claimed_at IS NOT NULL AND claimed_at <= sqlc.arg(cutoff) AND processed = FALSE AND dlq_at IS NULL;
