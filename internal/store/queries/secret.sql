-- name: UpsertSecret :exec
INSERT INTO secrets (org_id, scope, key, sealed, key_version, updated_at)
VALUES (sqlc.arg(org_id), sqlc.arg(scope), sqlc.arg(key), sqlc.arg(sealed), sqlc.arg(key_version), sqlc.arg(updated_at))
ON CONFLICT (org_id, scope, key) DO UPDATE SET sealed = excluded.sealed, key_version = excluded.key_version, updated_at = excluded.updated_at;

-- name: DeleteSecret :execrows
DELETE FROM secrets WHERE org_id = $1 AND scope = $2 AND key = $3;

-- name: DeleteSecretScope :execrows
DELETE FROM secrets WHERE org_id = $1 AND scope = $2;

-- name: Secret :one
SELECT * FROM secrets WHERE org_id = $1 AND scope = $2 AND key = $3;

-- name: SecretsOfScope :many
SELECT * FROM secrets WHERE org_id = $1 AND scope = $2 ORDER BY key;

-- name: SecretNames :many
SELECT scope, key, key_version, updated_at FROM secrets WHERE org_id = $1 ORDER BY scope, key;
