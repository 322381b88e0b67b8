-- +goose Up
-- Forges: commit statuses, and what fills gaps of deliveries. One text for SQLite and PostgreSQL.

-- Derived from runs and jobs (PIPE-7); execution_runs.checks_* says which runs have something to post.
CREATE TABLE commit_statuses (
  run_id      TEXT NOT NULL REFERENCES execution_runs(id) ON DELETE CASCADE,
  context     TEXT NOT NULL, -- kici/<workflow>, kici/<workflow>/job/<name>
  org_id      TEXT NOT NULL,
  job_id      TEXT NOT NULL, -- '' for the workflow's own
  sha         TEXT NOT NULL,
  state       TEXT NOT NULL, -- source.StatusState last posted, '' for none yet
  description TEXT NOT NULL,
  wanted      TEXT NOT NULL, -- state that it should have now
  attempts    BIGINT NOT NULL, -- failed ones since the last success
  reason      TEXT NOT NULL, -- why it is not as wanted, a word (obs.CheckReasons, superseded); '' when it is
  last_error  TEXT NOT NULL, -- the same as a sentence
  created_at  BIGINT NOT NULL,
  posted_at   BIGINT,
  failing_since BIGINT, -- first failure since the last success
  gave_up_at  BIGINT, -- the forge refused it for good; the run is unaffected (XC-74)
  PRIMARY KEY (run_id, context)
);
CREATE INDEX commit_statuses_list ON commit_statuses (org_id, created_at, run_id);
CREATE INDEX commit_statuses_failing ON commit_statuses (org_id, created_at, run_id) WHERE failing_since IS NOT NULL;

-- Branches and tags as the origin had them when kici last looked or was told; a difference that no delivery explains is a
-- missed push.
CREATE TABLE source_heads (
  source_id  TEXT NOT NULL REFERENCES sources(id) ON DELETE CASCADE,
  ref        TEXT NOT NULL, -- full ref
  sha        TEXT NOT NULL, -- '' when it is new and was seen only once
  pending    TEXT NOT NULL, -- another commit that was seen once; the next look makes it a delivery
  seen_at    BIGINT NOT NULL,
  PRIMARY KEY (source_id, ref)
);
CREATE TABLE source_polls (
  source_id     TEXT PRIMARY KEY REFERENCES sources(id) ON DELETE CASCADE,
  next_at       BIGINT NOT NULL,
  polled_at     BIGINT NOT NULL, -- last look that succeeded
  failures      BIGINT NOT NULL,
  last_error    TEXT NOT NULL,
  redeliver_since BIGINT NOT NULL -- the forge's log of deliveries was read up to here
);
CREATE INDEX source_polls_due ON source_polls (next_at);
