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
			"internal/store/db/dispatch.sql.go", "g.state = 'online' AND g.draining = FALSE\n    AND g.session_id <> '' AND g.link_lost_at IS NULL\n    AND (", "g.state <> ''\n    AND (",
		},
	}},
	{"group-kept", "a place in a concurrency group is never given up", 1, []edit{
		{"internal/run/group.go", "	if _, err := l.tx.ReleaseSlot(l.ctx, s.ID); err != nil {", "	if _, err := 0, error(nil); err != nil {"},
		{"internal/run/group.go", "		if _, err := tx.ReleaseSlot(ctx, r.ID); err != nil {", "		g.slots = append(g.slots, r)\n		if _, err := 0, error(nil); err != nil {"},
	}},
	{"need-ignored", "a job begins whatever has become of those that it needs", 1, []edit{
		{"internal/plan/needs.go", "		case !n.RunOn.Admits(Effective(n.Status, n.Allowed)):\n			return NeedsRefused\n", ""},
	}},
	{"verdict-blind", "a run succeeds whatever its jobs came to", 1, []edit{
		{"internal/run/end.go", "AllowedFailure: j.AllowedFailure}", "AllowedFailure: true}"},
	}},
	{"end-untold", "the end of a job that was skipped is not told", 1, []edit{
		{"internal/run/end.go", "	if err := l.jobEvent(job, e, started.Int64, steps); err != nil {", "	if e.status == \"skipped\" {\n	} else if err := l.jobEvent(job, e, started.Int64, steps); err != nil {"},
	}},
	{"rerun-blind", "a rerun of what failed keeps the results of jobs that need it", 1, []edit{
		{"internal/run/rerun.go", "	p.spread(again)\n", ""},
	}},
	{"cancel-unheard", "an agent is not told that its job is cancelled", 1, []edit{
		{"internal/fleet/deliver.go", "s.cancel(jobKey{row.ID, int(row.Attempt)}, row.CancelForce) {", "false && s.cancel(jobKey{row.ID, int(row.Attempt)}, row.CancelForce) {"},
	}},
	{"add-again", "a step that asks twice adds its jobs twice", 1, []edit{
		{"internal/run/add.go", "err != nil || names != nil {\n		return names, err", "err != nil || names != nil && false {\n		return names, err"},
	}},
	{"add-early", "a step is told that its jobs are added although they could not be written", 1, []edit{
		{"internal/run/add.go", "	return names, err\n}\n\n// AddJobsTx", "	if names != nil {\n		err = nil\n	}\n	return names, err\n}\n\n// AddJobsTx"},
	}},
	{"emit-early", "a step is told that its event is emitted although it could not be written", 1, []edit{
		{"internal/event/emit.go", "	if err := emit(); err != nil {", "	if err := emit(); err != nil && *id == \"\" {"},
	}},
	{"fires-twice", "a schedule that was decided on twice fires twice: the write does not look at the instant", 1, []edit{
		{"internal/store/db/schedule.sql.go", "WHERE registration_id = $3 AND expression = $4 AND timezone = $5\n  AND last_fired_at < $1\n", "WHERE registration_id = $3 AND expression = $4 AND timezone = $5\n"},
		{"internal/schedule/fire.go", "		for _, row := range rows {\n			n, err := s.settle", "		for _, row := range append(rows, rows...) {\n			n, err := s.settle"},
	}},
	{"routed-twice", "an event that is routed again starts again what it has started", 1, []edit{
		{"internal/event/route.go", "		if done[t.reg.ID] {", "		if false && done[t.reg.ID] {"},
		{"internal/event/route.go", "DedupKey: f.event.ID + \":\" + t.reg.ID,", "DedupKey: \"\","},
	}},
	{"dead-twice", "a dead letter that is retried starts again what it has started", 1, []edit{
		{"internal/event/route.go", "	if e.Attempts > 1 || e.NextRetryAt.Valid {", "	if e.Attempts > 1 {"},
		{"internal/event/route.go", "DedupKey: f.event.ID + \":\" + t.reg.ID,", "DedupKey: \"\","},
	}},
	{"claim-kept-not", "the claim on a delivery that takes long is not renewed, and nothing else keeps two from processing it", 1, []edit{
		{"internal/ingress/claims.go", "	if len(slow) == 0 {", "	if true {"},
		{"internal/store/db/ingress.sql.go", "WHERE id = $11 AND claimed_by = $12 AND attempts = $13 AND finished_at IS NULL\n", "WHERE id = $11 AND $12 <> 'x' AND $13 >= 0\n"},
		{"internal/ingress/pipeline.go", "DedupKey: d.ID + \":\" + w.Name,", "DedupKey: \"\","},
	}},
	{"deaf-leader", "a leader does not notice that its lease is over, and its writes do not look at the term", 3, []edit{
		{"internal/cluster/leader.go", "	if l.term == 0 || !l.env.Now().Before(l.until) {", "	if l.term == 0 {"},
		{"internal/store/writer.go", "		if r.term > 0 {\n			if err := tx.checkTerm", "		if r.term > 1<<60 {\n			if err := tx.checkTerm"},
	}},
	{"drain-forgotten", "a server that drains gets work as before", 1, []edit{
		{"internal/dispatch/snapshot.go", "Draining: n.Draining, GlobalMaxAgents", "GlobalMaxAgents"},
		{"internal/dispatch/snapshot.go", "		if n.Draining {", "		if false {"},
		{"internal/store/db/dispatch.sql.go", "SELECT 1 FROM cluster_instances i WHERE i.instance_id = $2 AND i.draining = TRUE", "SELECT 1 FROM cluster_instances i WHERE i.instance_id = $2 AND FALSE"},
		{"internal/store/db/dispatch.sql.go", "SELECT 1 FROM cluster_instances i WHERE i.draining = TRUE\n", "SELECT 1 FROM cluster_instances i WHERE FALSE\n"},
	}},
	{"drain-late", "what was decided before a server was told to drain is written after it", 1, []edit{
		{"internal/store/db/dispatch.sql.go", "FROM cluster_instances i WHERE i.instance_id = $1 AND i.draining = FALSE\n", "FROM cluster_instances i WHERE i.instance_id = $1\n"},
		{"internal/store/db/dispatch.sql.go", "SELECT 1 FROM cluster_instances i WHERE i.instance_id = $2 AND i.draining = TRUE", "SELECT 1 FROM cluster_instances i WHERE i.instance_id = $2 AND FALSE"},
		{"internal/store/db/dispatch.sql.go", "SELECT 1 FROM cluster_instances i WHERE i.draining = TRUE\n", "SELECT 1 FROM cluster_instances i WHERE FALSE\n"},
	}},
	{"backoff-forgotten", "a scaler that backs off is asked all the same", 1, []edit{
		{"internal/dispatch/snapshot.go", "BackoffUntil: s.UntilAt.Int64,", "BackoffUntil: 0,"},
		{"internal/store/db/dispatch.sql.go", "b.scaler = $3 AND b.until_at > $4)", "b.scaler = $3 AND b.until_at > $4 + 1000000000)"},
	}},
	{"grace-ignored", "a job that nothing could run ends at once", 1, []edit{
		{"internal/dispatch/explain.go", "	return now - grace.Milliseconds()\n", "	return now - grace.Milliseconds()/10\n"},
	}},
	{"setting-deaf", "a server does not hear of settings that another has changed", 3, []edit{
		{"internal/setting/service.go", "Wake: wake, Log: s.log, Tick: s.Load}", "Wake: wake, Log: s.log, Tick: func(context.Context) error { return nil }}"},
	}},
	{"reason-frozen", "why jobs wait is written once and does not change", 1, []edit{
		{"internal/dispatch/explain.go", "		if p.reasons[r.Shape] != text {", "		if p.reasons[r.Shape] == \"\" {"},
	}},
	{"reason-cap", "a full scaler is said to hold one agent less than it does", 1, []edit{
		{"internal/placement/reasons.go", "	r.Text = fullText(name, l) + held.text\n", "	l.used--\n	r.Text = fullText(name, l) + held.text\n"},
	}},
	{"reason-room", "a scaler that takes nothing is said to have room", 1, []edit{
		{"internal/placement/reasons.go", "	case s.blocked != nil:\n		return *s.blocked, true\n", ""},
	}},
	{"reason-until", "a back-off is said to end later than it does", 1, []edit{
		{"internal/placement/reasons.go", "r.Kind, r.Until, r.Text = ReasonBackoff, s.BackoffUntil, backoffText", "r.Kind, r.Until, r.Text = ReasonBackoff, s.BackoffUntil+5000, backoffText"},
	}},
	{"reason-busy", "an agent that drains is said to be busy", 1, []edit{
		{"internal/placement/reasons_agents.go", "	case a.Draining || a.State == ci.AgentDraining || a.State == ci.AgentEnding:\n		return ReasonDraining\n", ""},
		{"internal/placement/reasons_agents.go", "import \"github.com/kici-go/kici/internal/ci\"\n", ""},
	}},
	{"reason-first", "of the reasons why a job waits only the first is told", 1, []edit{
		{"internal/api/read/why.go", "		reasons = append(reasons, f.reasons.list...)\n", "		reasons = append(reasons, f.reasons.list[:min(1, len(f.reasons.list))]...)\n"},
	}},
	{"reason-elsewhere", "a job with an agent on its way is told what keeps others waiting", 1, []edit{
		{"internal/api/read/why.go", "	case f.boundID != \"\":\n", "	case f.boundID == \"never\":\n"},
	}},
	{"withdraw-claimed", "an agent of a warm pool that is given a job in the same pass is ended as surplus, or for its room", 1, []edit{
		{"internal/placement/warm.go", "a.Job == \"\" && !a.taken && a.State.Live()", "a.Job == \"\" && a.State.Live()"},
		{"internal/store/db/dispatch.sql.go", "state IN ('requested', 'starting', 'booting', 'online')\n  AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.agent_id = $3 AND a.ended_at IS NULL)", "state IN ('requested', 'starting', 'booting', 'online')"},
	}},
	{"pool-over", "a warm pool is filled whatever the caps say", 1, []edit{
		{"internal/placement/warm.go", "		if _, full := s.exceeded(claim.Requests); full {\n", "		if _, full := s.exceeded(claim.Requests); full && lacks < 0 {\n"},
	}},
	{"pool-stays", "a warm pool that is taken out of the file keeps its agents", 1, []edit{
		{"internal/placement/warm.go", "	if surplus <= 0 {\n		return\n	}\n	old", "	if surplus <= 0 || size == 0 {\n		return\n	}\n	old"},
	}},
	{"retired-forgotten", "a scaler that is taken out of the file is forgotten with its agents", 1, []edit{
		{"internal/scaler/reload.go", "		if n.scalers[id] == nil {\n", "		if n.scalers[id] == nil && id.Name == \"\" {\n"},
		{"internal/scaler/publish.go", "	for _, r := range rows {\n		ids =", "	for _, r := range rows[:0] {\n		ids ="},
		{"internal/scaler/publish.go", "		for _, s := range old {\n			ids =", "		for _, s := range old[:0] {\n			ids ="},
	}},
	{"reload-unsaid", "what a reload changes is not published", 1, []edit{
		{"internal/scaler/reload.go", "	n.config, n.ready = next, false\n", "	n.config = next\n"},
	}},
}
