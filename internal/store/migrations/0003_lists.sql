-- +goose Up
-- What the heading of the list of runs asks: when something failed last. Only failed runs are in it.
CREATE INDEX execution_runs_failed ON execution_runs (org_id, finished_at) WHERE status = 'failed';
