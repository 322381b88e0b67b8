-- +goose Up
-- Every instant is UTC milliseconds (D1); every JSON column is TEXT; every tenant row has org_id (D2).
-- One text for SQLite and PostgreSQL.

CREATE TABLE orgs (
  id         TEXT PRIMARY KEY, -- slug
  created_at BIGINT NOT NULL
);

CREATE TABLE cluster_meta (
  key   TEXT PRIMARY KEY, -- cluster_id, cluster_name
  value TEXT NOT NULL
);

-- Nodes: every orchestrator process, by its stable instance id (D4, CLU-7).
CREATE TABLE cluster_instances (
  instance_id          TEXT PRIMARY KEY,
  name                 TEXT NOT NULL, -- host name, for people
  version              TEXT NOT NULL,
  url                  TEXT NOT NULL, -- where this instance listens
  started_at           BIGINT NOT NULL,
  ready_at             BIGINT NOT NULL, -- 0 until start-up work is done; agents' recovery deadlines count from here (D17)
  heartbeat_at         BIGINT NOT NULL,
  draining             BOOLEAN NOT NULL,
  global_max_agents    BIGINT NOT NULL, -- of scalers.yaml; 0 when it has none
  global_max_cpu_milli BIGINT NOT NULL, -- 0 = no cap
  global_max_mem_bytes BIGINT NOT NULL
);

-- Leadership (D29): the term changes only by takeover and is what leader writes read; the lease is renewed.
CREATE TABLE leader_term (
  id   TEXT PRIMARY KEY, -- 'leader'
  term BIGINT NOT NULL
);
CREATE TABLE leader_lease (
  id         TEXT PRIMARY KEY, -- 'leader'
  holder     TEXT NOT NULL,
  term       BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);

CREATE TABLE admin_tokens (
  id           TEXT PRIMARY KEY,
  org_id       TEXT NOT NULL REFERENCES orgs(id),
  label        TEXT NOT NULL,
  role         TEXT NOT NULL, -- owner, admin, auditor
  token_hash   TEXT NOT NULL UNIQUE, -- sha256 hex
  routing_key  TEXT, -- null = every source
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT,
  revoked_at   BIGINT,
  last_used_at BIGINT
);

-- Dashboard sessions and one-time login links.
CREATE TABLE web_sessions (
  token      TEXT PRIMARY KEY, -- sha256 hex of the cookie value
  data       BYTEA NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE TABLE login_links (
  token_hash     TEXT PRIMARY KEY,
  admin_token_id TEXT NOT NULL REFERENCES admin_tokens(id) ON DELETE CASCADE,
  expires_at     BIGINT NOT NULL,
  consumed_at    BIGINT
);

CREATE TABLE access_log (
  id         TEXT PRIMARY KEY,
  org_id     TEXT NOT NULL,
  at         BIGINT NOT NULL,
  actor_kind TEXT NOT NULL, -- user, api_key, system, agent
  actor      TEXT NOT NULL,
  action     TEXT NOT NULL, -- dotted (AUD-3)
  target     TEXT NOT NULL,
  source     TEXT NOT NULL, -- admin_http, admin_cli, dashboard, agent, system
  outcome    TEXT NOT NULL, -- allowed, denied, error
  request_id TEXT NOT NULL,
  error      TEXT NOT NULL,
  meta       TEXT NOT NULL
);
CREATE INDEX access_log_at ON access_log (org_id, at, id);

CREATE TABLE request_idempotency (
  org_id     TEXT NOT NULL,
  key        TEXT NOT NULL, -- "<route>:<Idempotency-Key>"
  result     TEXT NOT NULL, -- what the first request made: a run id
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (org_id, key)
);

CREATE TABLE secrets (
  org_id      TEXT NOT NULL REFERENCES orgs(id),
  scope       TEXT NOT NULL, -- '' = organisation; '__source__/<id>' and '__system__' belong to the orchestrator
  key         TEXT NOT NULL,
  sealed      BYTEA NOT NULL, -- envelope with key version (D11)
  key_version BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  PRIMARY KEY (org_id, scope, key)
);

CREATE TABLE sources (
  id          TEXT PRIMARY KEY,
  org_id      TEXT NOT NULL REFERENCES orgs(id),
  kind        TEXT NOT NULL, -- local, generic
  name        TEXT NOT NULL,
  routing_key TEXT NOT NULL UNIQUE, -- generic:<org>:<uuid>
  repo        TEXT NOT NULL, -- repository identifier; '' for a source without one
  config      TEXT NOT NULL, -- JSON, by kind
  enabled     BOOLEAN NOT NULL,
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  deleted_at  BIGINT
);
CREATE UNIQUE INDEX sources_name ON sources (org_id, name) WHERE deleted_at IS NULL;

-- Deliveries: durable buffer, de-duplication and delivery log in one row (ING-14…23).
CREATE TABLE deliveries (
  id              TEXT PRIMARY KEY,
  org_id          TEXT NOT NULL REFERENCES orgs(id),
  delivery_id     TEXT NOT NULL, -- sender's id; de-duplication key (ING-15)
  source_id       TEXT NOT NULL,
  routing_key     TEXT NOT NULL,
  kind            TEXT NOT NULL, -- of the source; 'manual' for API starts
  event           TEXT NOT NULL,
  action          TEXT NOT NULL,
  repo            TEXT NOT NULL,
  ref             TEXT NOT NULL,
  sha             TEXT NOT NULL,
  status          TEXT NOT NULL, -- received, processing │ processed, skipped, lockfile_missing, lockfile_corrupt, failed
  duplicates      BIGINT NOT NULL, -- repeats answered with duplicate:true
  body_encoding   TEXT NOT NULL, -- '' or 'zstd' (D27)
  body_size       BIGINT NOT NULL,
  body_sha256     TEXT NOT NULL,
  received_at     BIGINT NOT NULL,
  claimed_by      TEXT NOT NULL, -- instance id, '' when free
  claimed_until   BIGINT NOT NULL,
  attempts        BIGINT NOT NULL,
  next_attempt_at BIGINT NOT NULL,
  finished_at     BIGINT,
  matched         BIGINT NOT NULL,
  run_id          TEXT, -- first run
  error           TEXT NOT NULL,
  -- wide columns last, as in execution_runs
  headers         TEXT NOT NULL, -- JSON; stripped of credentials
  decisions       TEXT NOT NULL, -- JSON: per workflow, the checks of WF-11
  body            BYTEA NOT NULL,
  UNIQUE (org_id, delivery_id)
);
CREATE INDEX deliveries_open ON deliveries (next_attempt_at, id) WHERE finished_at IS NULL;
CREATE INDEX deliveries_list ON deliveries (org_id, received_at, id);

CREATE TABLE workflow_registrations (
  id             TEXT PRIMARY KEY,
  org_id         TEXT NOT NULL REFERENCES orgs(id),
  routing_key    TEXT NOT NULL,
  repo           TEXT NOT NULL,
  workflow       TEXT NOT NULL,
  lock_entry     TEXT NOT NULL, -- JSON lock.Workflow
  trigger_types  TEXT NOT NULL, -- ',push,generic_webhook,'
  commit_sha     TEXT NOT NULL,
  default_branch TEXT NOT NULL,
  source_file    TEXT NOT NULL,
  disabled       BOOLEAN NOT NULL,
  is_global      BOOLEAN NOT NULL,
  synced_at      BIGINT NOT NULL, -- received_at of the delivery that wrote it (REG-2)
  UNIQUE (routing_key, repo, workflow)
);
CREATE INDEX workflow_registrations_org ON workflow_registrations (org_id, repo, workflow);
-- The newest default-branch push whose workflows are registered; it stays when that push removed them all (REG-2).
CREATE TABLE registration_syncs (
  routing_key TEXT NOT NULL,
  repo        TEXT NOT NULL,
  commit_sha  TEXT NOT NULL,
  received_at BIGINT NOT NULL, -- of the delivery
  delivery_id TEXT NOT NULL, -- deliveries.id; orders deliveries of one millisecond
  PRIMARY KEY (routing_key, repo)
);
CREATE TABLE registry_versions (
  id      TEXT PRIMARY KEY, -- 'default'
  version BIGINT NOT NULL
);

CREATE TABLE run_numbers (
  org_id TEXT NOT NULL,
  repo   TEXT NOT NULL,
  last   BIGINT NOT NULL,
  PRIMARY KEY (org_id, repo)
);

CREATE TABLE execution_runs (
  id               TEXT PRIMARY KEY,
  org_id           TEXT NOT NULL REFERENCES orgs(id),
  number           BIGINT NOT NULL, -- per organisation and repository (D3)
  routing_key      TEXT NOT NULL,
  repo             TEXT NOT NULL,
  workflow         TEXT NOT NULL,
  status           TEXT NOT NULL, -- ci.RunStatus
  title            TEXT NOT NULL, -- first line of the commit message, or run-name
  ref              TEXT NOT NULL,
  branch           TEXT NOT NULL,
  sha              TEXT NOT NULL,
  actor            TEXT NOT NULL,
  trigger_event    TEXT NOT NULL, -- push, pr:opened, rerun, … (WF-20)
  warnings         TEXT NOT NULL, -- JSON list of sentences (D9)
  delivery_id      TEXT NOT NULL, -- deliveries.id, '' for none
  dedup_key        TEXT UNIQUE, -- '<deliveries.id>:<workflow>' (ING-16); null for manual starts
  trust_tier       TEXT NOT NULL,
  is_fork          BOOLEAN NOT NULL,
  chain_depth      BIGINT NOT NULL,
  parent_run_id    TEXT,
  original_run_id  TEXT,
  created_at       BIGINT NOT NULL,
  started_at       BIGINT,
  finished_at      BIGINT,
  deadline_at      BIGINT, -- whole-run timeout (PIPE-20)
  cancelling_at    BIGINT,
  cancel_force     BOOLEAN NOT NULL,
  cancelled_by     TEXT NOT NULL,
  failure_reason   TEXT NOT NULL, -- first writer wins (PIPE-21)
  failure_class    TEXT NOT NULL,
  init_failure     TEXT NOT NULL, -- category of PIPE-16, '' for none
  run_attempt      BIGINT NOT NULL, -- 1, and one more for each rerun of the same original
  -- Commit statuses (PIPE-7). A run whose source shows them counts every change of it or its jobs in checks_changed, in the
  -- transaction of the change; checks_done is the change up to which statuses were posted. Both stay 0 for other runs.
  checks_changed   BIGINT NOT NULL DEFAULT 0,
  checks_done      BIGINT NOT NULL DEFAULT 0,
  checks_due_at    BIGINT NOT NULL DEFAULT 0, -- not before: debounce and back-off; 0 is at once
  checks_lease     BIGINT NOT NULL DEFAULT 0, -- until then somebody posts for it
  -- The wide columns stand last: SQLite reads a row from its front and pays for every page it passes.
  event            TEXT NOT NULL, -- JSON ci.Event
  inputs           TEXT NOT NULL, -- JSON object
  lock_entry       TEXT NOT NULL, -- JSON lock.Workflow
  matched_trigger  TEXT NOT NULL, -- JSON workflow.Decision
  UNIQUE (org_id, repo, number)
);
CREATE INDEX execution_runs_list ON execution_runs (org_id, created_at, id);
CREATE INDEX execution_runs_open ON execution_runs (status, id) WHERE finished_at IS NULL;
CREATE INDEX execution_runs_deadline ON execution_runs (deadline_at) WHERE finished_at IS NULL AND deadline_at IS NOT NULL;
CREATE INDEX execution_runs_checks ON execution_runs (checks_due_at, id) WHERE checks_changed > checks_done;
-- Runs that show their statuses under the same names beside the same commit; the newest does.
CREATE INDEX execution_runs_commit ON execution_runs (routing_key, repo, sha, workflow, number) WHERE checks_changed > 0;
CREATE INDEX execution_runs_original ON execution_runs (original_run_id) WHERE original_run_id IS NOT NULL;

CREATE TABLE execution_jobs (
  id                TEXT PRIMARY KEY,
  run_id            TEXT NOT NULL REFERENCES execution_runs(id) ON DELETE CASCADE,
  org_id            TEXT NOT NULL,
  idx               BIGINT NOT NULL, -- order in the run
  name              TEXT NOT NULL, -- 'test (1.26)' for a matrix child (WF-7)
  base_name         TEXT NOT NULL, -- 'test'
  display_name      TEXT NOT NULL,
  status            TEXT NOT NULL, -- ci.JobStatus
  matrix            TEXT NOT NULL, -- JSON object, '{}' for none
  fanout_index      BIGINT NOT NULL,
  fanout_total      BIGINT NOT NULL,
  labels            TEXT NOT NULL, -- JSON, normalised, evaluated when ready
  exclude_labels    TEXT NOT NULL, -- JSON
  cpu_milli         BIGINT NOT NULL, -- requests
  mem_bytes         BIGINT NOT NULL,
  cpu_limit_milli   BIGINT NOT NULL,
  mem_limit_bytes   BIGINT NOT NULL,
  shape             TEXT NOT NULL, -- key of (labels, exclusions, resources, org): D30
  needs_satisfied   BOOLEAN NOT NULL,
  continue_on_error BOOLEAN NOT NULL,
  allowed_failure   BOOLEAN NOT NULL, -- D6; set when it ended in a failure
  timeout_ms        BIGINT NOT NULL,
  queue_deadline_at BIGINT, -- QUE-3
  attempt           BIGINT NOT NULL, -- of the current or last assignment, from 1
  dispatch_attempts BIGINT NOT NULL, -- requeues so far (QUE-11)
  agent_id          TEXT, -- of the current or last assignment; null while it waits in the queue
  unroutable_since  BIGINT, -- QUE-14
  provisioning_error TEXT NOT NULL, -- MG-23
  created_at        BIGINT NOT NULL,
  ready_at          BIGINT,
  queued_at         BIGINT,
  started_at        BIGINT,
  finished_at       BIGINT,
  heartbeat_at      BIGINT,
  recover_by        BIGINT, -- while recovering (D17)
  cancel_reason     TEXT NOT NULL,
  cancel_force      BOOLEAN NOT NULL,
  error             TEXT NOT NULL, -- a sentence for people
  init_failure      TEXT NOT NULL,
  kill_method       TEXT NOT NULL,
  log_bytes         BIGINT NOT NULL,
  report_seq        BIGINT NOT NULL, -- highest committed report of the current attempt
  -- wide columns last, as above
  lock_job          TEXT NOT NULL, -- JSON lock.Job
  outputs           TEXT NOT NULL, -- JSON object
  UNIQUE (run_id, name)
);
CREATE INDEX execution_jobs_run ON execution_jobs (run_id, idx);
-- The queue: jobs that wait for an agent (agent_id is set by the assignment and cleared by a requeue). It covers what a dispatch tick reads.
CREATE INDEX execution_jobs_queue ON execution_jobs (shape, queued_at, id, run_id, queue_deadline_at, unroutable_since)
  WHERE status = 'queued' AND agent_id IS NULL;
CREATE INDEX execution_jobs_run_open ON execution_jobs (run_id) WHERE finished_at IS NULL;
CREATE INDEX execution_jobs_waiting ON execution_jobs (org_id, queued_at, id) WHERE status = 'queued'; -- the queue as people see it
CREATE INDEX execution_jobs_open ON execution_jobs (status, id) WHERE finished_at IS NULL;

CREATE TABLE execution_job_needs (
  run_id    TEXT NOT NULL,
  job_id    TEXT NOT NULL REFERENCES execution_jobs(id) ON DELETE CASCADE,
  needs_id  TEXT NOT NULL, -- upstream job
  needs_name TEXT NOT NULL, -- upstream base name, for the needs context
  run_on    TEXT NOT NULL, -- ',success,skipped,'
  PRIMARY KEY (job_id, needs_id)
);
CREATE INDEX execution_job_needs_up ON execution_job_needs (needs_id);
CREATE INDEX execution_job_needs_run ON execution_job_needs (run_id);

CREATE TABLE execution_steps (
  job_id      TEXT NOT NULL REFERENCES execution_jobs(id) ON DELETE CASCADE,
  run_id      TEXT NOT NULL,
  idx         BIGINT NOT NULL, -- 0 is kici's own set-up step (checkout)
  attempt     BIGINT NOT NULL,
  name        TEXT NOT NULL,
  status      TEXT NOT NULL, -- ci.StepStatus
  started_at  BIGINT,
  finished_at BIGINT,
  exit_code   BIGINT,
  error       TEXT NOT NULL,
  allowed     BOOLEAN NOT NULL,
  retries     BIGINT NOT NULL,
  PRIMARY KEY (job_id, idx)
);

-- Which agent has which job: made by the leader, delivered by whichever coordinator holds the session (D4).
CREATE TABLE assignments (
  job_id      TEXT NOT NULL REFERENCES execution_jobs(id) ON DELETE CASCADE,
  attempt     BIGINT NOT NULL,
  run_id      TEXT NOT NULL,
  agent_id    TEXT NOT NULL,
  state       TEXT NOT NULL, -- assigned, acked │ ended
  created_at  BIGINT NOT NULL,
  ack_by      BIGINT NOT NULL, -- QUE-10; counts from the moment it could be delivered
  sent_at     BIGINT,
  acked_at    BIGINT,
  ended_at    BIGINT,
  end_reason  TEXT NOT NULL, -- finished, rejected, not_acked, lost, withdrawn, cancelled
  PRIMARY KEY (job_id, attempt)
);
CREATE UNIQUE INDEX assignments_open_job ON assignments (job_id) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX assignments_open_agent ON assignments (agent_id) WHERE ended_at IS NULL;
CREATE INDEX assignments_unsent ON assignments (created_at) WHERE ended_at IS NULL AND state = 'assigned' AND sent_at IS NULL;

-- The ledger of agents: a row before it is a thing (idea 1).
CREATE TABLE agents (
  id               TEXT PRIMARY KEY, -- scaler-<type>-<8 hex>, or a static agent's own id
  org_id           TEXT NOT NULL,
  node_id          TEXT NOT NULL, -- instance that owns its compute; '' for static agents
  scaler           TEXT NOT NULL, -- '' for static agents
  type             TEXT NOT NULL, -- backend type, or static
  state            TEXT NOT NULL, -- ci.AgentState
  labels           TEXT NOT NULL, -- JSON; what it may register with (SC-6); after registration what it has
  mandatory_labels TEXT NOT NULL, -- JSON gate
  label_set        TEXT NOT NULL, -- declared set, normalised (SC-2)
  cpu_milli        BIGINT NOT NULL, -- reservation: requests (SC-23)
  mem_bytes        BIGINT NOT NULL,
  cpu_limit_milli  BIGINT NOT NULL,
  mem_limit_bytes  BIGINT NOT NULL,
  bound_job_id     TEXT, -- SC-16; null = warm
  token_hash       TEXT, -- of its ephemeral token; null until starting
  launch           TEXT NOT NULL, -- JSON by the backend: what undoing it needs (pid and start time, cgroup, directory)
  requested_at     BIGINT NOT NULL,
  state_at         BIGINT NOT NULL, -- when it entered its state
  register_by      BIGINT, -- spawn deadline
  registered_at    BIGINT,
  instance_id      TEXT NOT NULL, -- coordinator that holds its session; '' when none
  session_id       TEXT NOT NULL, -- connection id of that session
  link_lost_at     BIGINT,
  last_seen_at     BIGINT,
  ended_at         BIGINT,
  gone_reason      TEXT NOT NULL,
  error            TEXT NOT NULL, -- last launch or delete error, for people
  delete_attempts  BIGINT NOT NULL,
  host             TEXT NOT NULL,
  platform         TEXT NOT NULL,
  arch             TEXT NOT NULL,
  version          TEXT NOT NULL,
  jobs_done        BIGINT NOT NULL,
  draining         BOOLEAN NOT NULL,
  rest_until       BIGINT -- it refused a job: no work for it before then
);
CREATE INDEX agents_live ON agents (node_id, scaler) WHERE state <> 'gone';
CREATE UNIQUE INDEX agents_bound ON agents (bound_job_id) WHERE state NOT IN ('gone', 'ending');
CREATE INDEX agents_list ON agents (requested_at, id);
CREATE INDEX agents_session ON agents (instance_id, state) WHERE instance_id <> '';

CREATE TABLE agent_tokens (
  id          TEXT PRIMARY KEY,
  org_id      TEXT NOT NULL,
  token_hash  TEXT NOT NULL UNIQUE, -- sha256 hex of kat_…
  prefix      TEXT NOT NULL, -- 12 characters
  type        TEXT NOT NULL, -- static, ephemeral
  agent_id    TEXT NOT NULL, -- ephemeral: the only agent it admits; static: ''
  labels      TEXT NOT NULL, -- JSON; scope
  mandatory_labels TEXT NOT NULL,
  created_by  TEXT NOT NULL,
  created_at  BIGINT NOT NULL,
  expires_at  BIGINT, -- limits the first registration (D13)
  revoked_at  BIGINT,
  last_seen_at BIGINT
);
CREATE INDEX agent_tokens_agent ON agent_tokens (agent_id);

-- Scalers as their node has decoded them; placement reads rows only (D16).
CREATE TABLE scalers (
  node_id       TEXT NOT NULL,
  name          TEXT NOT NULL,
  type          TEXT NOT NULL,
  position      BIGINT NOT NULL, -- file order
  spec          TEXT NOT NULL, -- JSON placement.ScalerSpec
  max_agents    BIGINT NOT NULL,
  cap_cpu_milli BIGINT NOT NULL, -- 0 = none
  cap_mem_bytes BIGINT NOT NULL,
  retiring      BOOLEAN NOT NULL,
  ready         BOOLEAN NOT NULL,
  not_ready     TEXT NOT NULL, -- why
  updated_at    BIGINT NOT NULL,
  PRIMARY KEY (node_id, name)
);

-- Back-off per scaler (MG-27…33), known to every coordinator and every restart.
CREATE TABLE scaler_backoffs (
  node_id    TEXT NOT NULL,
  scaler     TEXT NOT NULL,
  failures   BIGINT NOT NULL, -- consecutive
  until_at   BIGINT NOT NULL,
  last_error TEXT NOT NULL,
  last_agent TEXT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (node_id, scaler)
);
CREATE TABLE scaler_failures (
  agent_id TEXT PRIMARY KEY, -- counted once (MG-30)
  node_id  TEXT NOT NULL,
  scaler   TEXT NOT NULL,
  at       BIGINT NOT NULL,
  job_id   TEXT,
  error    TEXT NOT NULL,
  tail     TEXT NOT NULL -- last 50 lines of its output (BM-12)
);
CREATE INDEX scaler_failures_recent ON scaler_failures (node_id, scaler, at);

-- Why no job of a shape moves, written only when it changes (D30).
CREATE TABLE shape_reasons (
  shape      TEXT PRIMARY KEY,
  reasons    TEXT NOT NULL, -- JSON []placement.Reason
  updated_at BIGINT NOT NULL
);

-- Internal events (events.md). Written by the transaction that they report (EVT-8); routed from part 3 on.
CREATE TABLE kici_events (
  id              TEXT PRIMARY KEY,
  org_id          TEXT NOT NULL,
  event_name      TEXT NOT NULL,
  payload         TEXT NOT NULL,
  source_repo     TEXT NOT NULL,
  source_routing_key TEXT NOT NULL,
  source_run_id   TEXT NOT NULL,
  source_job_id   TEXT NOT NULL,
  target_repos    TEXT NOT NULL,
  chain_depth     BIGINT NOT NULL,
  processed       BOOLEAN NOT NULL,
  claimed_at      BIGINT,
  claimed_by      TEXT NOT NULL,
  attempts        BIGINT NOT NULL,
  next_retry_at   BIGINT,
  last_error      TEXT NOT NULL,
  dlq_at          BIGINT,
  dlq_reason      TEXT NOT NULL,
  match_outcome   TEXT,
  matched_count   BIGINT,
  created_at      BIGINT NOT NULL,
  expires_at      BIGINT NOT NULL
);
CREATE INDEX kici_events_open ON kici_events (created_at, id) WHERE processed = FALSE;

