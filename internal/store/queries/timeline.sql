-- The record of a run (internal/run notes, internal/api/read timeline).

-- name: InsertRunNote :execrows
-- The run's row is locked, so the count holds.
INSERT INTO run_notes (run_id, id, at, job_id, kind, actor, detail)
SELECT CAST(sqlc.arg(run_id) AS TEXT), CAST(sqlc.arg(id) AS TEXT), CAST(sqlc.arg(at) AS BIGINT), CAST(sqlc.arg(job_id) AS TEXT),
  CAST(sqlc.arg(kind) AS TEXT), CAST(sqlc.arg(actor) AS TEXT), CAST(sqlc.arg(detail) AS TEXT)
WHERE (SELECT COUNT(*) FROM run_notes n WHERE n.run_id = CAST(sqlc.arg(run_id) AS TEXT)) < CAST(sqlc.arg(max_notes) AS BIGINT);

-- name: InsertLastRunNote :exec
INSERT INTO run_notes (run_id, id, at, job_id, kind, actor, detail)
VALUES (sqlc.arg(run_id), 'last', sqlc.arg(at), '', sqlc.arg(kind), sqlc.arg(actor), sqlc.arg(detail))
ON CONFLICT (run_id, id) DO NOTHING;

-- name: RunNotes :many
SELECT id, at, job_id, kind, actor, detail FROM run_notes WHERE run_id = $1 ORDER BY at, id;
