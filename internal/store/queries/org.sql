-- name: InsertOrg :exec
INSERT INTO orgs (id, created_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING;

-- name: Orgs :many
SELECT * FROM orgs ORDER BY id;

-- name: CountOrgs :one
SELECT COUNT(*) FROM orgs;
