-- Deliveries: durable intake, claims of the pipeline, outcomes (ING-14…23). Every write of a claimed row names the claim:
-- who holds it and in which attempt.

-- name: InsertDelivery :execrows
INSERT INTO deliveries (id, org_id, delivery_id, source_id, routing_key, kind, event, action, repo, ref, sha, status, duplicates,
  body_encoding, body_size, body_sha256, received_at, claimed_by, claimed_until, attempts, next_attempt_at, finished_at, matched,
  run_id, error, headers, decisions, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, $13, $14, $15, $16, $17, $18, $19, $16, $20, $21, $22, '', $23, $24, $25)
ON CONFLICT (org_id, delivery_id) DO NOTHING;

-- name: CountDuplicateDelivery :one
UPDATE deliveries SET duplicates = duplicates + 1 WHERE org_id = $1 AND delivery_id = $2
RETURNING id, received_at, status, run_id;

-- name: RetireDeliveryKey :execrows
-- An idempotency key older than its window is free again; the row keeps it with its own id appended (ING-20).
UPDATE deliveries SET delivery_id = delivery_id || '~' || id
WHERE org_id = sqlc.arg(org_id) AND delivery_id = sqlc.arg(delivery_id) AND received_at <= sqlc.arg(before);

-- name: DeliveryBySenderID :one
SELECT id, received_at, status, run_id FROM deliveries WHERE org_id = $1 AND delivery_id = $2;

-- name: ClaimDeliveries :many
-- The cast of LIMIT keeps SQLite from preparing the statement anew at every use.
UPDATE deliveries SET status = 'processing', claimed_by = sqlc.arg(claimed_by), claimed_until = sqlc.arg(claimed_until),
  attempts = attempts + 1
WHERE id IN (
  SELECT d.id FROM deliveries d
  WHERE d.finished_at IS NULL AND d.next_attempt_at <= sqlc.arg(now) AND d.claimed_until <= sqlc.arg(now)
    AND (CAST(sqlc.arg(only_org) AS TEXT) = '' OR d.org_id = CAST(sqlc.arg(only_org) AS TEXT))
  ORDER BY d.next_attempt_at, d.id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER)
  FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: ClaimableDelivery :many
SELECT id FROM deliveries
WHERE finished_at IS NULL AND next_attempt_at <= sqlc.arg(now) AND claimed_until <= sqlc.arg(now) LIMIT 1;

-- name: RenewDeliveryClaim :execrows
UPDATE deliveries SET claimed_until = sqlc.arg(claimed_until)
WHERE id = sqlc.arg(id) AND claimed_by = sqlc.arg(claimed_by) AND attempts = sqlc.arg(attempt) AND finished_at IS NULL;

-- name: FinishDelivery :execrows
UPDATE deliveries SET status = sqlc.arg(status), finished_at = sqlc.arg(now), matched = sqlc.arg(matched), run_id = sqlc.arg(run_id),
  error = sqlc.arg(error), decisions = sqlc.arg(decisions), action = sqlc.arg(action), repo = sqlc.arg(repo), ref = sqlc.arg(ref),
  sha = sqlc.arg(sha), claimed_by = '', claimed_until = 0
WHERE id = sqlc.arg(id) AND claimed_by = sqlc.arg(claimed_by) AND attempts = sqlc.arg(attempt) AND finished_at IS NULL;

-- name: DropDeliveryBody :exec
-- Of a delivery that is done and too large to be kept; its size and digest stay.
UPDATE deliveries SET body = '', body_encoding = 'omitted' WHERE id = $1;

-- name: RetryDelivery :execrows
UPDATE deliveries SET status = 'received', claimed_by = '', claimed_until = 0, error = sqlc.arg(error),
  attempts = attempts - sqlc.arg(uncounted), next_attempt_at = sqlc.arg(next_attempt_at)
WHERE id = sqlc.arg(id) AND claimed_by = sqlc.arg(claimed_by) AND attempts = sqlc.arg(attempt) AND finished_at IS NULL;

-- name: ReleaseDeliveryClaims :execrows
-- What a process that bore this instance id had claimed when it died.
UPDATE deliveries SET status = 'received', claimed_by = '', claimed_until = 0
WHERE claimed_by = $1 AND finished_at IS NULL;

-- name: ReplayDelivery :execrows
UPDATE deliveries SET status = 'received', finished_at = NULL, attempts = 0, error = '', next_attempt_at = sqlc.arg(now)
WHERE org_id = sqlc.arg(org_id) AND id = sqlc.arg(id) AND status = 'failed';

-- name: CountOpenDeliveriesByOrg :many
SELECT o.org_id, COUNT(*) AS waiting FROM (
  SELECT d.org_id FROM deliveries d WHERE d.finished_at IS NULL LIMIT CAST(sqlc.arg(max_rows) AS INTEGER)
) AS o GROUP BY o.org_id;

-- name: OpenDeliveryOfSource :many
SELECT id FROM deliveries WHERE finished_at IS NULL AND source_id = $1 LIMIT 1;

-- name: DeliveryForHead :many
-- A delivery that told of this commit on this ref; a skipped one leads to nothing.
SELECT id FROM deliveries
WHERE org_id = sqlc.arg(org_id) AND received_at >= sqlc.arg(since) AND source_id = sqlc.arg(source_id) AND ref = sqlc.arg(ref)
  AND sha = sqlc.arg(sha) AND status <> 'skipped'
LIMIT 1;
