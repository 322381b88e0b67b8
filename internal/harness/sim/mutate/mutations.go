package main

// mutation is a fault made on purpose. Each edit replaces a text that stands exactly once in its file.
type mutation struct {
	name, what   string
	coordinators int
	edits        []edit
}

type edit struct{ file, old, new string }

var mutations = []mutation{
	{"requeue-started", "a started job whose agent is lost goes back to the queue", 1, []edit{
		{"internal/run/finish.go", "	if !job.StartedAt.Valid {\n		return s.Requeue(", "	if true {\n		return s.Requeue("},
		{"internal/run/finish.go", `!holds(job, int64(attempt), "") || job.StartedAt.Valid {`, `!holds(job, int64(attempt), "") {`},
		{"internal/run/finish.go", "	case job.Status != string(ci.JobQueued):\n		return false, nil\n	case countAttempt", "	case countAttempt"},
		{"internal/store/db/run.sql.go", "UPDATE execution_jobs SET agent_id = NULL, dispatch_attempts", "UPDATE execution_jobs SET status = 'queued', started_at = NULL, agent_id = NULL, dispatch_attempts"},
		{"internal/store/db/run.sql.go", "WHERE id = $1 AND attempt = $2 AND status = 'queued' AND agent_id IS NOT NULL", "WHERE id = $1 AND attempt = $2 AND agent_id IS NOT NULL"},
	}},
	{"start-unknown", "an agent begins a job before the server knows that it runs there", 1, []edit{
		{"internal/agent/outbox.go", "known: make(chan struct{})", "known: func() chan struct{} { c := make(chan struct{}); close(c); return c }()"},
	}},
	{"skip-term", "leader writes do not look at the term", 3, []edit{
		{"internal/store/writer.go", "		if r.term > 0 {\n			if err := tx.checkTerm", "		if r.term > 1<<60 {\n			if err := tx.checkTerm"},
	}},
	{"early-accept", "a delivery is acknowledged before its commit", 1, []edit{
		{
			"internal/ingress/handler.go", "	acc, err := s.accept(r.Context(), e.row, got, s.repeatsOf(e.row, got, intake))",
			"	acc, err := Accepted{ID: \"early\", DeliveryID: got.ID}, error(nil)\n	go func() { _, _ = s.accept(context.WithoutCancel(r.Context()), e.row, got, s.repeatsOf(e.row, got, intake)) }()",
		},
	}},
	{"forget-key", "the idempotency key of a start is not kept", 1, []edit{
		{"internal/ingress/start.go", "	key := req.RequestID\n", "	key := \"\"\n"},
	}},
	{"open-assignment", "the end of a job does not end its assignment", 1, []edit{
		{
			"internal/run/end.go", "_, err := l.tx.EndAssignment(l.ctx, db.EndAssignmentParams{JobID: job.ID, Attempt: job.Attempt, EndedAt: nullInt(l.now), EndReason: reason})",
			"_, err := reason, error(nil)",
		},
	}},
	{"cap-off-by-one", "a cap lets one agent more through", 1, []edit{
		{"internal/placement/capacity.go", "l.used+l.asks <= l.max {", "l.used+l.asks <= l.max+1 {"},
	}},
	{"ending-is-free", "an agent that is being ended does not count any more", 1, []edit{
		{"internal/placement/capacity.go", "!a.State.Live() {", "!a.State.Live() || a.State == ci.AgentEnding {"},
	}},
	{"only-wakes", "loops run when they are woken, never by themselves", 1, []edit{
		{"internal/service/service.go", "		timer.Reset(next)\n", "		_ = next\n"},
	}},
	{"orphans-stay", "what runs without a row is left alone", 1, []edit{
		{"internal/scaler/reconcile.go", "	r.orphans()\n", ""},
	}},
	{"token-leak", "the token of an agent that is gone stays", 1, []edit{
		{"internal/scaler/act.go", "		return tx.NodeDeleteAgentTokens(rctx, j.AgentID)\n", "		return nil\n"},
	}},
	{"no-repeat", "an agent does not repeat unacknowledged reports on a new connection", 1, []edit{
		{"internal/agent/outbox.go", "	o.sent, o.open = 0, false\n", "	o.open = false\n"},
	}},
	{"early-report-ack", "reports are acknowledged although they could not be written", 1, []edit{
		{
			"internal/fleet/report.go", "	if err != nil {\n		return err\n	}\n	f.answer(s, verdicts)",
			"	if err != nil {\n		verdicts = verdicts[:0]\n		for _, r := range batch {\n			verdicts = append(verdicts, verdict{report: r, owner: ownerMine})\n		}\n	}\n	f.answer(s, verdicts)",
		},
	}},
	{"believe-anybody", "a report counts whoever sends it", 1, []edit{
		{"internal/run/report.go", `	return (attempt == 0 || attempt == job.Attempt) && (agentID == "" || (job.AgentID.Valid && job.AgentID.String == agentID))`, "	return true"},
	}},
	{"not-final", "a job that has ended can end again", 1, []edit{
		{"internal/run/finish.go", "func (l *life) finish(job db.LockJobRow, e End) (bool, error) {\n	if ci.JobStatus(job.Status).Terminal() {", "func (l *life) finish(job db.LockJobRow, e End) (bool, error) {\n	if false {"},
		{"internal/run/finish.go", "	to, err := ci.NextJob(ci.JobStatus(job.Status), jobEvent(ci.JobStatus(job.Status), e))\n", "	to, err := e.Status, error(nil)\n"},
		{"internal/fleet/ask.go", "	case a.EndReason == \"finished\":\n		return ownerEnded, \"\", nil\n", "	case a.EndReason == \"finished\":\n		return ownerMine, a.State, nil\n"},
	}},
	{"needs-early", "a job does not wait for all that it needs", 1, []edit{
		{"internal/run/needs.go", "		if n > 0 {\n			return true, nil", "		if n > 1<<30 {\n			return true, nil"},
		{"internal/plan/needs.go", "		case !n.Status.Terminal():\n			state = NeedsOpen\n", "		case !n.Status.Terminal():\n"},
	}},
	{"event-twice", "the end of a job is told twice", 1, []edit{
		{"internal/run/end.go", "	if err := l.jobEvent(job, e, started.Int64, steps); err != nil {", "	if err := errors.Join(l.jobEvent(job, e, started.Int64, steps), l.jobEvent(job, e, started.Int64, steps)); err != nil {"},
		{"internal/run/end.go", "import (\n", "import (\n	\"errors\"\n"},
	}},
	{"group-over", "a concurrency group takes one more than its maximum", 1, []edit{
		{"internal/plan/group.go", "	return n <= limit\n", "	return n <= limit+1\n"},
	}},
	{"wave-over", "the window of a fan-out lets one more through", 1, []edit{
		{"internal/run/wave.go", "	return w.max - w.inFlight, nil", "	return w.max + 1 - w.inFlight, nil"},
	}},
	{"log-repeats", "a piece of a log that is sent again is stored again", 1, []edit{
		{"internal/logs/append.go", "	lines = lines[min(int64(len(lines)), st.offset()-offset):]\n", ""},
	}},
	{"why-stale", "the reason of a waiting job names what has ended as well", 1, []edit{
		{"internal/api/read/why.go", "		if u.met() {\n			continue", "		if false {\n			continue"},
	}},
	{"why-silent", "a job that waits for a concurrency group does not say so", 1, []edit{
		{"internal/api/read/hold.go", "	if p := f.holds.jobs[f.job.ID]; p != nil {", "	if p := f.holds.jobs[\"\"]; p != nil {"},
	}},
	{"emit-again", "the idempotency key of an emitted event is not kept", 1, []edit{
		{"internal/event/emit.go", "		e.RequestKey = \"operator:\" + f.OrgID + \":\" + f.RequestID\n", "		e.RequestKey = \"\"\n"},
	}},
	{"assign-taken", "the assignment does not look whether the agent is there and free", 1, []edit{
		{
			"internal/store/db/dispatch.sql.go", "g.state = 'online' AND g.draining = FALSE\n    AND g.session_id <> '' AND g.link_lost_at IS NULL)\n  AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.agent_id = $1 AND a.ended_at IS NULL)",
			"g.state <> '')",
		},
	}},
}
