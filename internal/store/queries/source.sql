-- Sources (ING-1…6). Deleting is soft: the row stays for the deliveries and runs that name it.

-- name: InsertSource :execrows
INSERT INTO sources (id, org_id, kind, name, routing_key, repo, config, enabled, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
ON CONFLICT DO NOTHING;

-- name: SourceByName :one
SELECT * FROM sources WHERE org_id = $1 AND name = $2 AND deleted_at IS NULL;

-- name: SourceByRoutingKey :one
SELECT * FROM sources WHERE routing_key = $1;

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
