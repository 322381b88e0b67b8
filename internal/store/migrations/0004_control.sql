-- +goose Up
-- The control plane, whole: settings, internal events, schedules, concurrency groups, waves, the record of a run. One text for
-- SQLite and PostgreSQL. execution_runs and execution_jobs get no columns: SQLite puts new ones behind the wide ones.

ALTER TABLE orgs ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE admin_tokens ADD COLUMN subject TEXT NOT NULL DEFAULT ''; -- whom it stands for; advisory (ADM-2)

-- Settings that were set (CLU-26): a key that is not in data has its default. Row locked by every change.
CREATE TABLE settings (
  scope      TEXT PRIMARY KEY, -- cluster, or org:<slug>
  version    BIGINT NOT NULL,  -- rises with every real change
  data       TEXT NOT NULL,    -- JSON object
  updated_at BIGINT NOT NULL,
  updated_by TEXT NOT NULL
);
ALTER TABLE cluster_instances ADD COLUMN settings_version BIGINT NOT NULL DEFAULT 0; -- applied by that instance (CLU-27)
ALTER TABLE cluster_instances ADD COLUMN registry_version BIGINT NOT NULL DEFAULT 0; -- loaded by that instance (REG-3)
ALTER TABLE cluster_instances ADD COLUMN stopped_at BIGINT NOT NULL DEFAULT 0; -- 0 while it runs, or when it did not say good-bye
ALTER TABLE agents ADD COLUMN lost_instance TEXT NOT NULL DEFAULT ''; -- the server that its lost link led to (STL-6); '' while it has one

-- Periodic jobs (JOB-1), as whichever instance ran them last left them.
CREATE TABLE scheduled_jobs (
  name        TEXT PRIMARY KEY,
  last_run_at BIGINT NOT NULL,
  last_ok_at  BIGINT NOT NULL, -- 0 = never
  duration_ms BIGINT NOT NULL,
  failures    BIGINT NOT NULL, -- consecutive
  last_error  TEXT NOT NULL,
  instance_id TEXT NOT NULL
);

-- Internal events: what 0001 left out.
ALTER TABLE kici_events ADD COLUMN emitter TEXT NOT NULL DEFAULT 'orchestrator'; -- orchestrator, step, operator
ALTER TABLE kici_events ADD COLUMN registration_id TEXT NOT NULL DEFAULT ''; -- the only addressee (EVT-20), '' for none
ALTER TABLE kici_events ADD COLUMN processed_at BIGINT;
ALTER TABLE kici_events ADD COLUMN buffered BOOLEAN NOT NULL DEFAULT FALSE; -- it is in the failure batches that want it (EVT-27)
ALTER TABLE kici_events ADD COLUMN actor TEXT NOT NULL DEFAULT ''; -- who emitted it, where it was a person
ALTER TABLE kici_events ADD COLUMN request_key TEXT; -- of a request that may be repeated
CREATE UNIQUE INDEX kici_events_request ON kici_events (source_job_id, request_key) WHERE request_key IS NOT NULL;
-- What is still to be routed, without dead letters; and what is being routed.
DROP INDEX kici_events_open;
CREATE INDEX kici_events_open ON kici_events (created_at, id) WHERE processed = FALSE AND dlq_at IS NULL;
CREATE INDEX kici_events_leased ON kici_events (claimed_at) WHERE claimed_at IS NOT NULL;
CREATE INDEX kici_events_list ON kici_events (org_id, created_at, id);
CREATE INDEX kici_events_expiry ON kici_events (expires_at);
CREATE INDEX kici_events_dead ON kici_events (org_id, dlq_at, id) WHERE dlq_at IS NOT NULL;
-- A target of an event that has been dispatched to, written with the run's row: a retry skips it (EVT-17).
CREATE TABLE event_runs (
  event_id        TEXT NOT NULL,
  registration_id TEXT NOT NULL,
  run_id          TEXT NOT NULL REFERENCES execution_runs(id) ON DELETE CASCADE,
  PRIMARY KEY (event_id, registration_id)
);
CREATE INDEX event_runs_run ON event_runs (run_id);
-- Who may start whose workflows across routing keys (EVT-21).
CREATE TABLE cross_repo_trust (
  id                 TEXT PRIMARY KEY,
  org_id             TEXT NOT NULL REFERENCES orgs(id),
  source_routing_key TEXT NOT NULL,
  source_repo        TEXT NOT NULL,
  target_routing_key TEXT NOT NULL,
  target_repo        TEXT NOT NULL,
  event_names        TEXT, -- JSON list of globs; null = every name
  enabled            BOOLEAN NOT NULL,
  created_at         BIGINT NOT NULL,
  created_by         TEXT NOT NULL,
  UNIQUE (org_id, source_routing_key, source_repo, target_routing_key, target_repo)
);
-- Failures that wait to be reported together (EVT-27…29): one open window for a registration.
CREATE TABLE failure_batches (
  id              TEXT PRIMARY KEY,
  org_id          TEXT NOT NULL,
  registration_id TEXT NOT NULL UNIQUE,
  opened_at       BIGINT NOT NULL,
  closes_at       BIGINT NOT NULL
);
CREATE INDEX failure_batches_due ON failure_batches (closes_at);
CREATE TABLE failure_batch_items (
  batch_id TEXT NOT NULL REFERENCES failure_batches(id) ON DELETE CASCADE,
  run_id   TEXT NOT NULL,
  event_id TEXT NOT NULL,
  added_at BIGINT NOT NULL,
  PRIMARY KEY (batch_id, run_id)
);

-- The history of schedules (CRN-2, CRN-5): seeded when the registration is written, gone with it.
CREATE TABLE schedules (
  registration_id TEXT NOT NULL REFERENCES workflow_registrations(id) ON DELETE CASCADE,
  expression      TEXT NOT NULL,
  timezone        TEXT NOT NULL,
  org_id          TEXT NOT NULL,
  last_fired_at   BIGINT NOT NULL, -- the instant that was due, or when it was seeded
  next_at         BIGINT,          -- when it is due next; null while its registration is disabled, or with an error
  last_event_id   TEXT NOT NULL,   -- '' until it has fired
  error           TEXT NOT NULL,   -- why it cannot fire, '' when it can (CRN-1)
  PRIMARY KEY (registration_id, expression, timezone)
);
CREATE INDEX schedules_due ON schedules (next_at, registration_id, expression, timezone) WHERE next_at IS NOT NULL;
CREATE INDEX schedules_org ON schedules (org_id);

-- Concurrency groups (CON-*). The group's row is the lock; a slot is a place in it.
CREATE TABLE concurrency_groups (
  org_id      TEXT NOT NULL,
  routing_key TEXT NOT NULL,
  group_key   TEXT NOT NULL,
  PRIMARY KEY (org_id, routing_key, group_key)
);
CREATE TABLE concurrency_slots (
  id           TEXT PRIMARY KEY,
  org_id       TEXT NOT NULL,
  routing_key  TEXT NOT NULL,
  group_key    TEXT NOT NULL,
  run_id       TEXT NOT NULL REFERENCES execution_runs(id) ON DELETE CASCADE,
  job_id       TEXT NOT NULL, -- '' for the run's own
  max          BIGINT NOT NULL, -- as its owner's workflow says
  state        TEXT NOT NULL, -- queued, active │ released
  created_at   BIGINT NOT NULL, -- place in the queue, with id
  activated_at BIGINT,
  begun        BOOLEAN NOT NULL, -- the owner has gone on, or never will; active and not begun is promoted (CON-5)
  wait_until   BIGINT, -- concurrency_wait_timeout_ms
  superseded_by TEXT NOT NULL, -- 'run #12': a newer owner wants this one ended; '' for none
  UNIQUE (run_id, job_id)
);
CREATE INDEX concurrency_slots_group ON concurrency_slots (org_id, routing_key, group_key, state, created_at, id);
CREATE INDEX concurrency_slots_waiting ON concurrency_slots (state, wait_until) WHERE begun = FALSE;
CREATE INDEX concurrency_slots_superseded ON concurrency_slots (id) WHERE superseded_by <> '' AND state <> 'released';
CREATE INDEX concurrency_slots_open ON concurrency_slots (id) WHERE state <> 'released';

-- Fan-outs with a window or fail-fast (NEED-9).
CREATE TABLE fanouts (
  run_id       TEXT NOT NULL REFERENCES execution_runs(id) ON DELETE CASCADE,
  base_name    TEXT NOT NULL,
  max_parallel BIGINT NOT NULL, -- 0 = no window
  fail_fast    BOOLEAN NOT NULL,
  PRIMARY KEY (run_id, base_name)
);

-- Jobs that a running step added; a repeat of the request finds what the first one made.
CREATE TABLE job_additions (
  run_id     TEXT NOT NULL REFERENCES execution_runs(id) ON DELETE CASCADE,
  by_job_id  TEXT NOT NULL,
  request_id TEXT NOT NULL,
  jobs       TEXT NOT NULL, -- JSON list of names
  at         BIGINT NOT NULL,
  PRIMARY KEY (by_job_id, request_id)
);
CREATE INDEX job_additions_run ON job_additions (run_id);

-- What happened to a run that its rows do not show by themselves: cancel asked, superseded, link lost and back, requeued, held,
-- promoted, jobs added. The rest of its record is read from the rows.
CREATE TABLE run_notes (
  run_id TEXT NOT NULL REFERENCES execution_runs(id) ON DELETE CASCADE,
  id     TEXT NOT NULL,
  at     BIGINT NOT NULL,
  job_id TEXT NOT NULL, -- '' for the run
  kind   TEXT NOT NULL,
  actor  TEXT NOT NULL, -- who: a person, an agent, kici
  detail TEXT NOT NULL, -- a sentence
  PRIMARY KEY (run_id, id)
);
-- Why jobs of a shape waited, one row for every change of the reasons' kinds; pruned.
CREATE TABLE shape_reason_log (
  shape   TEXT NOT NULL,
  at      BIGINT NOT NULL,
  reasons TEXT NOT NULL, -- JSON []placement.Reason
  PRIMARY KEY (shape, at)
);
CREATE INDEX shape_reason_log_at ON shape_reason_log (at);
-- What a run caused, and the agents that were started for a job, as its record shows them.
CREATE INDEX kici_events_source ON kici_events (source_run_id, created_at) WHERE emitter = 'step' OR matched_count > 0;
CREATE INDEX agents_for_job ON agents (bound_job_id) WHERE bound_job_id IS NOT NULL;
