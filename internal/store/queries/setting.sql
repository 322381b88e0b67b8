-- name: SettingRows :many
SELECT * FROM settings;

-- name: SeedSettings :exec
INSERT INTO settings (scope, version, data, updated_at, updated_by) VALUES (sqlc.arg(scope), 0, '{}', sqlc.arg(now), '')
ON CONFLICT (scope) DO NOTHING;

-- name: SettingsForUpdate :one
SELECT * FROM settings WHERE scope = $1 FOR UPDATE;

-- name: UpdateSettings :exec
UPDATE settings SET version = sqlc.arg(version), data = sqlc.arg(data), updated_at = sqlc.arg(now), updated_by = sqlc.arg(updated_by)
WHERE scope = sqlc.arg(scope);
