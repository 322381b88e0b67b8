-- Sources (ING-1…6). Deleting is soft: the row stays for the deliveries and runs that name it.

-- name: InsertSource :execrows
INSERT INTO sources (id, org_id, kind, name, routing_key, repo, config, enabled, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
ON CONFLICT DO NOTHING;

-- name: SourceByName :one
SELECT * FROM sources WHERE org_id = $1 AND name = $2 AND deleted_at IS NULL;

-- name: SourceByRoutingKey :one
SELECT * FROM sources WHERE routing_key = $1;

-- name: SourceByID :one
SELECT * FROM sources WHERE id = $1 AND deleted_at IS NULL;

-- name: SourceList :many
SELECT * FROM sources WHERE org_id = $1 AND deleted_at IS NULL ORDER BY name;

-- name: SourceByRef :one
-- By name, id or routing key.
SELECT * FROM sources
WHERE org_id = sqlc.arg(org_id) AND deleted_at IS NULL
  AND (name = sqlc.arg(ref) OR id = sqlc.arg(ref) OR routing_key = sqlc.arg(ref));

-- name: SetSourceEnabled :execrows
UPDATE sources SET enabled = sqlc.arg(enabled), updated_at = sqlc.arg(now) WHERE id = sqlc.arg(id) AND deleted_at IS NULL;

-- name: SetSourceConfig :execrows
UPDATE sources SET config = sqlc.arg(config), repo = sqlc.arg(repo), updated_at = sqlc.arg(now)
WHERE id = sqlc.arg(id) AND updated_at = sqlc.arg(read_at) AND deleted_at IS NULL;

-- name: DeleteSource :execrows
UPDATE sources SET deleted_at = sqlc.arg(now), enabled = FALSE WHERE id = sqlc.arg(id) AND deleted_at IS NULL;

-- name: StaleSources :many
-- Sources that are off, and of which nothing has come and nothing was changed since an instant (ADM-13).
SELECT s.* FROM sources s
WHERE s.org_id = sqlc.arg(org_id) AND s.deleted_at IS NULL AND s.enabled = FALSE AND s.updated_at < sqlc.arg(before)
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.org_id = sqlc.arg(org_id) AND d.received_at >= sqlc.arg(before) AND d.source_id = s.id)
ORDER BY s.name;

-- name: AddSourcePolls :execrows
-- Every source on a forge is looked at for missed pushes.
INSERT INTO source_polls (source_id, next_at, polled_at, failures, last_error, redeliver_since)
SELECT id, CAST(sqlc.arg(now) AS BIGINT), 0, 0, '', CAST(sqlc.arg(now) AS BIGINT) FROM sources
WHERE kind IN ('github', 'gitea', 'gitlab') AND deleted_at IS NULL
ON CONFLICT (source_id) DO NOTHING;

-- name: WakeSourcePolls :execrows
-- A server that was away looks at once; a forge that failed keeps its pause.
UPDATE source_polls SET next_at = sqlc.arg(now) WHERE next_at > sqlc.arg(now) AND failures = 0;

-- name: DueSourcePolls :many
SELECT p.source_id, p.polled_at, p.failures, p.redeliver_since, s.org_id, s.routing_key, s.name
FROM source_polls p JOIN sources s ON s.id = p.source_id
WHERE p.next_at <= sqlc.arg(now) AND s.enabled AND s.deleted_at IS NULL
ORDER BY p.next_at, p.source_id LIMIT CAST(sqlc.arg(max_rows) AS INTEGER);

-- name: FinishSourcePoll :execrows
UPDATE source_polls SET next_at = sqlc.arg(next_at), polled_at = sqlc.arg(polled_at), failures = sqlc.arg(failures),
  last_error = sqlc.arg(last_error), redeliver_since = sqlc.arg(redeliver_since)
WHERE source_id = sqlc.arg(source_id);

-- name: RestartSourcePoll :execrows
-- The next look is the first one: what the forge has then is recorded, nothing is started.
UPDATE source_polls SET next_at = sqlc.arg(now), polled_at = 0, failures = 0, last_error = '', redeliver_since = sqlc.arg(now)
WHERE source_id = sqlc.arg(source_id);

-- name: HastenSourcePoll :execrows
UPDATE source_polls SET next_at = sqlc.arg(now), failures = 0 WHERE source_id = sqlc.arg(source_id);

-- name: SourceHeads :many
SELECT ref, sha, pending, seen_at FROM source_heads WHERE source_id = $1 ORDER BY ref;

-- name: SourceHead :many
SELECT sha, seen_at FROM source_heads WHERE source_id = $1 AND ref = $2;

-- name: SetSourceHead :execrows
-- What is newer stays: deliveries end in any order.
INSERT INTO source_heads (source_id, ref, sha, pending, seen_at)
VALUES (sqlc.arg(source_id), sqlc.arg(ref), sqlc.arg(sha), '', sqlc.arg(seen_at))
ON CONFLICT (source_id, ref) DO UPDATE SET sha = excluded.sha, pending = '', seen_at = excluded.seen_at
WHERE source_heads.seen_at <= excluded.seen_at;

-- name: SuspectSourceHead :execrows
-- A difference seen once. Nothing is changed when the head was recorded anew meanwhile.
INSERT INTO source_heads (source_id, ref, sha, pending, seen_at)
VALUES (sqlc.arg(source_id), sqlc.arg(ref), sqlc.arg(sha), sqlc.arg(pending), sqlc.arg(seen_at))
ON CONFLICT (source_id, ref) DO UPDATE SET pending = excluded.pending WHERE source_heads.sha = excluded.sha;

-- name: DropSourceHead :execrows
-- A branch or tag that is gone, unless it was recorded anew meanwhile.
DELETE FROM source_heads WHERE source_id = sqlc.arg(source_id) AND ref = sqlc.arg(ref) AND seen_at <= sqlc.arg(seen_at);

-- name: ForgetSourceHeads :execrows
DELETE FROM source_heads WHERE source_id = $1;

-- name: SourceSecretKeys :many
SELECT key, updated_at FROM secrets WHERE org_id = $1 AND scope = $2 ORDER BY key;
