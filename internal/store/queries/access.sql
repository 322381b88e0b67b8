-- name: LockOrg :one
SELECT id FROM orgs WHERE id = $1 FOR UPDATE;

-- name: InsertAdminToken :execrows
INSERT INTO admin_tokens (id, org_id, label, role, token_hash, routing_key, created_at, expires_at, subject)
VALUES (sqlc.arg(id), sqlc.arg(org_id), sqlc.arg(label), sqlc.arg(role), sqlc.arg(token_hash), sqlc.narg(routing_key),
  sqlc.arg(created_at), sqlc.narg(expires_at), sqlc.arg(subject))
ON CONFLICT (token_hash) DO NOTHING;

-- name: AdminTokenByHash :one
SELECT * FROM admin_tokens WHERE token_hash = $1;

-- name: AdminToken :one
SELECT * FROM admin_tokens WHERE id = $1;

-- name: AdminTokens :many
SELECT * FROM admin_tokens WHERE org_id = $1 ORDER BY created_at, id;

-- name: CountUsableOwners :one
SELECT COUNT(*) FROM admin_tokens
WHERE role = 'owner' AND routing_key IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > CAST(sqlc.arg(now) AS BIGINT));

-- name: CountUsableOwnersOfOrg :one
SELECT COUNT(*) FROM admin_tokens
WHERE org_id = sqlc.arg(org_id) AND role = 'owner' AND routing_key IS NULL AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > CAST(sqlc.arg(now) AS BIGINT));

-- name: RevokeAdminToken :execrows
UPDATE admin_tokens SET revoked_at = sqlc.arg(now) WHERE id = sqlc.arg(id) AND org_id = sqlc.arg(org_id) AND revoked_at IS NULL;

-- name: TouchAdminToken :exec
UPDATE admin_tokens SET last_used_at = sqlc.arg(now)
WHERE id = sqlc.arg(id) AND (last_used_at IS NULL OR last_used_at < CAST(sqlc.arg(now) AS BIGINT));

-- name: InsertLoginLink :exec
INSERT INTO login_links (token_hash, admin_token_id, expires_at) VALUES ($1, $2, $3);

-- name: ConsumeLoginLink :one
UPDATE login_links SET consumed_at = sqlc.arg(now)
WHERE token_hash = sqlc.arg(token_hash) AND consumed_at IS NULL AND expires_at > CAST(sqlc.arg(now) AS BIGINT)
RETURNING admin_token_id;

-- name: InsertWebSession :exec
INSERT INTO web_sessions (token, data, expires_at) VALUES ($1, $2, $3);

-- name: WebSession :one
SELECT * FROM web_sessions WHERE token = $1;

-- name: ExtendWebSession :exec
UPDATE web_sessions SET expires_at = sqlc.arg(expires_at) WHERE token = sqlc.arg(token) AND expires_at < sqlc.arg(expires_at);

-- name: DeleteWebSession :exec
DELETE FROM web_sessions WHERE token = $1;

-- name: DeleteExpiredWebSessions :execrows
DELETE FROM web_sessions WHERE expires_at <= $1;

-- name: DeleteExpiredLoginLinks :execrows
DELETE FROM login_links WHERE expires_at <= $1;

-- name: InsertAccessLog :exec
INSERT INTO access_log (id, org_id, at, actor_kind, actor, action, target, source, outcome, request_id, error, meta)
VALUES (sqlc.arg(id), sqlc.arg(org_id), sqlc.arg(at), sqlc.arg(actor_kind), sqlc.arg(actor), sqlc.arg(action), sqlc.arg(target),
  sqlc.arg(source), sqlc.arg(outcome), sqlc.arg(request_id), sqlc.arg(error), sqlc.arg(meta));

-- name: AccessLogEntry :one
SELECT * FROM access_log WHERE org_id = $1 AND id = $2;

-- name: InsertIdempotencyKey :execrows
INSERT INTO request_idempotency (org_id, key, result, expires_at)
VALUES (sqlc.arg(org_id), sqlc.arg(key), sqlc.arg(result), sqlc.arg(expires_at))
ON CONFLICT (org_id, key) DO NOTHING;

-- name: IdempotencyResult :one
SELECT result FROM request_idempotency WHERE org_id = $1 AND key = $2;

-- name: DeleteExpiredIdempotencyKeys :execrows
DELETE FROM request_idempotency WHERE expires_at <= $1;

-- name: InsertAgentToken :exec
INSERT INTO agent_tokens (id, org_id, token_hash, prefix, type, agent_id, labels, mandatory_labels, created_by, created_at, expires_at)
VALUES (sqlc.arg(id), sqlc.arg(org_id), sqlc.arg(token_hash), sqlc.arg(prefix), sqlc.arg(type), sqlc.arg(agent_id), sqlc.arg(labels),
  sqlc.arg(mandatory_labels), sqlc.arg(created_by), sqlc.arg(created_at), sqlc.narg(expires_at));

-- name: AgentTokenByHash :one
SELECT * FROM agent_tokens WHERE token_hash = $1;

-- name: AgentTokens :many
SELECT * FROM agent_tokens
WHERE org_id = sqlc.arg(org_id) AND (CAST(sqlc.arg(type) AS TEXT) = '' OR type = CAST(sqlc.arg(type) AS TEXT))
ORDER BY created_at, id;

-- name: RevokeAgentToken :one
UPDATE agent_tokens SET revoked_at = sqlc.arg(now) WHERE id = sqlc.arg(id) AND org_id = sqlc.arg(org_id) AND revoked_at IS NULL
RETURNING *;

-- name: DeleteAgentTokensOfGone :execrows
DELETE FROM agent_tokens
WHERE type = 'ephemeral' AND NOT EXISTS (SELECT 1 FROM agents a WHERE a.id = agent_tokens.agent_id AND a.state <> 'gone');
