-- Registrations: the stored copies of the workflows of default branches (REG-1…9).

-- name: RegistrationsAll :many
SELECT * FROM workflow_registrations ORDER BY id;

-- name: RegistrationsOfRepo :many
SELECT * FROM workflow_registrations WHERE routing_key = $1 AND repo = $2 ORDER BY workflow;

-- name: UpsertRegistration :one
INSERT INTO workflow_registrations (id, org_id, routing_key, repo, workflow, lock_entry, trigger_types, commit_sha,
  default_branch, source_file, disabled, is_global, synced_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, FALSE, $11, $12)
ON CONFLICT (routing_key, repo, workflow) DO UPDATE SET
  org_id = excluded.org_id, lock_entry = excluded.lock_entry, trigger_types = excluded.trigger_types,
  commit_sha = excluded.commit_sha, default_branch = excluded.default_branch, source_file = excluded.source_file,
  is_global = excluded.is_global, synced_at = excluded.synced_at
RETURNING id, disabled;

-- name: RegistrationForUpdate :one
SELECT * FROM workflow_registrations WHERE org_id = $1 AND id = $2 FOR UPDATE;

-- name: DeleteRegistration :execrows
DELETE FROM workflow_registrations WHERE id = $1;

-- name: DeleteRegistrationsOfSource :execrows
DELETE FROM workflow_registrations WHERE routing_key = $1;

-- name: SetRegistrationDisabled :execrows
UPDATE workflow_registrations SET disabled = sqlc.arg(disabled)
WHERE org_id = sqlc.arg(org_id) AND id = sqlc.arg(id) AND disabled <> sqlc.arg(disabled);

-- name: RegistrationSync :one
SELECT * FROM registration_syncs WHERE routing_key = $1 AND repo = $2;

-- name: LockRegistrationSync :one
SELECT * FROM registration_syncs WHERE routing_key = $1 AND repo = $2 FOR UPDATE;

-- name: ForgetRegistrationSync :exec
DELETE FROM registration_syncs WHERE routing_key = $1;

-- name: ClaimRegistrationSync :execrows
-- Takes the sync unless a newer delivery has it (REG-2). The row lock orders two syncs of one repository.
INSERT INTO registration_syncs (routing_key, repo, commit_sha, received_at, delivery_id) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (routing_key, repo) DO UPDATE SET
  commit_sha = excluded.commit_sha, received_at = excluded.received_at, delivery_id = excluded.delivery_id
WHERE registration_syncs.received_at < excluded.received_at
   OR (registration_syncs.received_at = excluded.received_at AND registration_syncs.delivery_id <= excluded.delivery_id);

-- name: RegistryVersion :one
SELECT version FROM registry_versions WHERE id = 'default';

-- name: BumpRegistryVersion :exec
INSERT INTO registry_versions (id, version) VALUES ('default', 1)
ON CONFLICT (id) DO UPDATE SET version = registry_versions.version + 1;
