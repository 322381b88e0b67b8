-- +goose Up
-- A job's own image (CT-10): what it asks for, evaluated when it was ready, and what its agent was started in. '' is none. SQLite puts the
-- column behind the wide ones of a job; it is read for one job of a shape, once.
ALTER TABLE execution_jobs ADD COLUMN image TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN image TEXT NOT NULL DEFAULT '';
