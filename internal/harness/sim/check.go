package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settleWithin is how long a system without faults may take until nothing is left to do.
// In real time what only runs out (leases, of leaders and of events) takes as long as it takes.
func (w *world) settleWithin() time.Duration {
	if w.postgres != nil {
		return 3 * time.Minute
	}
	return 15 * time.Minute
}

// settle ends all faults, waits until nothing is left to do, lets people use the system once more, and checks what must be so
// then. A server may have been made to drain.
func (w *world) settle(drained *coordinator) {
	w.trace.add("faults end")
	w.settling.Store(true)
	w.net.heal()
	p := &person{w: w, d: w.seed.dice("aftermath"), http: w.net.client("aftermath", nil), drained: drained}
	defer p.http.CloseIdleConnections()
	defer w.verify()
	if drained != nil { // what waits says why, and that is true
		time.Sleep(quick(peaceAfter) + p.d.between(15*time.Second, 45*time.Second))
		p.drain(nil)
	}
	w.cool()
	if !w.rest() {
		return
	}
	p.reviveAll()
	p.rerunFailed()
	if !w.rest() {
		return
	}
	w.epilogue()
	if w.rest() {
		w.trace.add("settled")
		time.Sleep(3 * time.Second)
	}
}

// rest waits until nothing is left to do.
func (w *world) rest() bool {
	began := time.Now()
	for {
		time.Sleep(quick(2*time.Second) + time.Duration(w.seed.at("settle", uint64(time.Since(began)))%1_000_000))
		left, err := w.left()
		switch {
		case err == nil && len(left) == 0:
			return true
		case time.Since(began) <= w.settleWithin():
		case err != nil:
			w.violate("settle", "cannot look: %v", err)
			return false
		default:
			w.violate("settle", "after %s there is still: %s", w.settleWithin(), strings.Join(left, "; "))
			return false
		}
	}
}

// open are queries for what must not be there when all is done; the first column names it.
var open = []struct{ what, query string }{
	{"delivery", "SELECT id, status, attempts, error FROM deliveries WHERE finished_at IS NULL"},
	{"run", "SELECT id, status FROM execution_runs WHERE finished_at IS NULL"},
	{"job", "SELECT id, name, status, agent_id, error FROM execution_jobs WHERE finished_at IS NULL"},
	{"agent", "SELECT id, state, gone_reason, error FROM agents WHERE state <> 'gone' AND type <> 'static'"},
	{"assignment", "SELECT job_id, attempt, agent_id, state FROM assignments WHERE ended_at IS NULL"},
	{"agent token", "SELECT id, agent_id FROM agent_tokens WHERE type = 'ephemeral'"},
	{"event", "SELECT id, event_name, attempts, last_error FROM kici_events WHERE processed = FALSE AND dlq_at IS NULL"},
	{"setting", `SELECT i.instance_id, i.settings_version, s.version FROM cluster_instances i JOIN settings s ON s.scope = 'cluster' WHERE i.settings_version < s.version`},
	{"slot", "SELECT id, state FROM concurrency_slots WHERE state <> 'released'"},
}

// left is what there is still to do.
func (w *world) left() ([]string, error) {
	for _, c := range w.coordinators {
		if l := c.current(); l == nil || !l.ready.Load() {
			return nil, fmt.Errorf("%s is not there", c.name)
		}
	}
	pool, err := w.openDatabase()
	if err != nil {
		return nil, err
	}
	defer func() { _ = pool.Close() }()
	var out []string
	for _, o := range open {
		found, err := rows(pool, o.query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.what, err)
		}
		for _, r := range found {
			out = append(out, o.what+" "+strings.Join(r, " "))
		}
	}
	differing, err := w.differing(pool)
	if err != nil {
		return nil, fmt.Errorf("scalers: %w", err)
	}
	out = append(out, differing...)
	if reserved, _ := w.reserved(); len(reserved) > 0 {
		out = append(out, fmt.Sprintf("reservations in the machine pool: %v", reserved))
	}
	for _, c := range w.coordinators {
		if n := c.machine.late.Load(); n > 0 {
			out = append(out, fmt.Sprintf("%d launches on their way on %s", n, c.machine.name))
		}
		for _, id := range c.machine.host.Things() {
			out = append(out, "instance "+id+" on "+c.machine.name)
		}
	}
	return out, nil
}

// leastGrace is less than any time that a job which nothing could run is told to wait.
const leastGrace = 15 * time.Second

// never are queries for what must never be found at the end.
var never = []struct{ what, query string }{
	{"guard", "SELECT text FROM sim_violations"},
	{"status", `SELECT id, status FROM execution_jobs WHERE finished_at IS NOT NULL
		AND status NOT IN ('success', 'failed', 'cancelled', 'skipped', 'timed_out_stale', 'drift_dropped', 'unroutable')`},
	{"status", "SELECT id, status FROM execution_runs WHERE finished_at IS NOT NULL AND status NOT IN ('success', 'failed', 'cancelled')"},
	{"event twice", `SELECT source_job_id, COUNT(*) FROM kici_events WHERE event_name = '__job_complete' GROUP BY source_job_id HAVING COUNT(*) > 1`},
	{"event twice", `SELECT source_run_id, COUNT(*) FROM kici_events WHERE event_name = '__workflow_complete' GROUP BY source_run_id HAVING COUNT(*) > 1`},
	{"event missing", `SELECT id, status FROM execution_jobs j WHERE finished_at IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM kici_events e WHERE e.source_job_id = j.id AND e.event_name = '__job_complete')
		AND NOT EXISTS (SELECT 1 FROM execution_runs r WHERE r.id = j.run_id AND r.chain_depth >= 9)
		AND NOT (j.attempt = 0 AND EXISTS (SELECT 1 FROM execution_runs r WHERE r.id = j.run_id AND r.original_run_id IS NOT NULL))`}, // taken over by a rerun: told when it ended
	{"verdict", `SELECT r.id, r.status, j.name, j.status FROM execution_runs r JOIN execution_jobs j ON j.run_id = r.id WHERE r.status = 'success'
		AND j.status IN ('failed', 'timed_out_stale', 'unroutable', 'drift_dropped', 'cancelled') AND NOT j.allowed_failure`},
	{"verdict", `SELECT r.id, r.status FROM execution_runs r WHERE r.status = 'failed' AND init_failure = ''
		AND r.failure_reason NOT LIKE 'no place in concurrency group%' AND NOT EXISTS (SELECT 1 FROM execution_jobs j
		WHERE j.run_id = r.id AND j.status IN ('failed', 'timed_out_stale', 'unroutable', 'drift_dropped') AND NOT j.allowed_failure)`},
	{"verdict", `SELECT r.id FROM execution_runs r WHERE r.finished_at IS NOT NULL AND EXISTS (SELECT 1 FROM execution_jobs j
		WHERE j.run_id = r.id AND j.finished_at IS NULL)`},
	{"step", `SELECT s.job_id, s.idx, s.status FROM execution_steps s JOIN execution_jobs j ON j.id = s.job_id
		WHERE j.finished_at IS NOT NULL AND s.status IN ('pending', 'running')`},
	{"needs", `SELECT j.id, j.name FROM execution_jobs j JOIN execution_job_needs n ON n.job_id = j.id JOIN execution_jobs u ON u.id = n.needs_id
		WHERE j.started_at IS NOT NULL AND (u.finished_at IS NULL OR u.finished_at > j.started_at + 10000)`},
	{"started twice", "SELECT dedup_key, COUNT(*) FROM execution_runs WHERE dedup_key IS NOT NULL GROUP BY dedup_key HAVING COUNT(*) > 1"},
	{"started without event", `SELECT r.id, r.workflow FROM execution_runs r WHERE r.workflow IN ('after', 'tick', 'heard', 'heard-too') AND r.trigger_event <> 'rerun' AND r.original_run_id IS NULL
		AND r.trigger_event NOT IN ('manual', 'dispatch') AND NOT EXISTS (SELECT 1 FROM event_runs e WHERE e.run_id = r.id)`},
	{"event told wrong", `SELECT e.id, e.event_name, e.match_outcome, e.matched_count, COUNT(t.run_id) FROM kici_events e LEFT JOIN event_runs t ON t.event_id = e.id
		WHERE e.processed = TRUE GROUP BY e.id HAVING COUNT(t.run_id) <> e.matched_count OR (e.match_outcome = 'matched') <> (COUNT(t.run_id) > 0)`},
	{"started twice", `SELECT delivery_id, workflow, COUNT(*) FROM execution_runs WHERE delivery_id <> '' AND original_run_id IS NULL
		GROUP BY delivery_id, workflow HAVING COUNT(*) > 1`},
	{"needs refused", `SELECT j.id, j.name, u.name, u.status, n.run_on FROM execution_jobs j JOIN execution_job_needs n ON n.job_id = j.id
		JOIN execution_jobs u ON u.id = n.needs_id WHERE j.started_at IS NOT NULL AND u.finished_at IS NOT NULL
		AND n.run_on NOT LIKE '%,' || CASE WHEN u.allowed_failure THEN 'success' ELSE u.status END || ',%'`},
	{"rerun", `SELECT j.id, j.name, u.name FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id JOIN execution_job_needs n ON n.job_id = j.id
		JOIN execution_jobs u ON u.id = n.needs_id WHERE r.original_run_id IS NOT NULL AND j.finished_at < r.created_at AND u.finished_at > r.created_at`},
	{"rerun", `SELECT j.id, j.name, j.status FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id
		WHERE r.original_run_id IS NOT NULL AND j.finished_at < r.created_at AND j.status NOT IN ('success', 'skipped') AND NOT j.allowed_failure`},
	{"dead letter", "SELECT id, event_name, attempts, last_error FROM kici_events WHERE dlq_at IS NOT NULL"},
	{"setting", `SELECT j.id, j.name, j.finished_at - j.unroutable_since FROM execution_jobs j WHERE j.status = 'unroutable' AND j.finished_at - j.unroutable_since < {grace}
		AND COALESCE(j.finished_at < j.queue_deadline_at, TRUE)`},
	{"fired twice", `SELECT registration_id, payload, COUNT(*) FROM kici_events WHERE event_name = '__schedule_fire' GROUP BY registration_id, payload HAVING COUNT(*) > 1`},
	{"failed without why", `SELECT j.id, j.name, j.status FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id WHERE j.status IN ('timed_out_stale', 'unroutable')
		AND j.error = '' AND NOT (r.original_run_id IS NOT NULL AND j.attempt = 0 AND j.finished_at < r.created_at)`}, // a result that a rerun has taken over has its why in the earlier run
}

// verify checks what is true of every schedule when it is over.
func (w *world) verify() {
	pool, err := w.openDatabase()
	if err != nil {
		w.violate("harness", "open database: %v", err)
		return
	}
	defer func() { _ = pool.Close() }()
	for _, n := range never {
		found, err := rows(pool, strings.ReplaceAll(n.query, "{grace}", strconv.FormatInt(quick(leastGrace).Milliseconds(), 10)))
		if err != nil {
			w.violate("harness", "%s: %v", n.what, err)
			continue
		}
		for _, r := range found {
			w.violate(n.what, "%s", strings.Join(r, " "))
		}
	}
	w.verifyDeliveries(pool)
	w.verifyRuns(pool)
	w.verifyEvents(pool)
	w.verifyAsks(pool)
	w.verifyTruth(pool)
	w.verifyLogs(pool)
	w.count(pool)
	w.state(pool)
}

// verifyDeliveries: what was accepted is there, and came to an end.
func (w *world) verifyDeliveries(pool *database) {
	w.mu.Lock()
	accepted := len(w.accepted)
	w.mu.Unlock()
	found, err := rows(pool, "SELECT delivery_id, status, matched, run_id FROM deliveries WHERE delivery_id LIKE '%push-%'")
	if err != nil {
		w.violate("harness", "read deliveries: %v", err)
		return
	}
	seen := map[string]bool{}
	for _, r := range found {
		r[0] = r[0][strings.LastIndex(r[0], ":")+1:]
		seen[r[0]] = true
		switch {
		case r[1] != "processed" && r[1] != "failed":
			w.violate("delivery", "%s ended %s", r[0], r[1])
		case r[1] == "processed" && r[2] != "0" && r[3] == "":
			w.violate("delivery", "%s matched %s workflows and has no run", r[0], r[2])
		}
	}
	w.mu.Lock()
	var lost []string
	for id := range w.accepted {
		if !seen[id] {
			lost = append(lost, id)
		}
	}
	w.mu.Unlock()
	for _, id := range lost {
		w.violate("delivery", "%s of %d was accepted and is not there", id, accepted)
	}
}

// verifyRuns: a run that somebody was told of is there.
func (w *world) verifyRuns(pool *database) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, id := range w.runs {
		var n int
		if err := pool.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM execution_runs WHERE id = ?", id).Scan(&n); err != nil || n != 1 {
			w.mu.Unlock()
			w.violate("run", "%s of %s was promised and is not there: %v", id, key, err)
			w.mu.Lock()
		}
	}
}

// verifyEvents: an event that was taken from somebody is there.
func (w *world) verifyEvents(pool *database) {
	w.mu.Lock()
	emitted := maps.Clone(w.emitted)
	w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(emitted)) {
		var n int
		if err := pool.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM kici_events WHERE id = ?", emitted[key]).Scan(&n); err != nil || n != 1 {
			if err == nil && n == 0 && w.wasDiscarded(emitted[key]) {
				continue
			}
			w.violate("event", "%s of %s was taken and is not there: %v", emitted[key], key, err)
		}
	}
}

// verifyTruth: a job that succeeded did all its steps, on one agent.
func (w *world) verifyTruth(pool *database) {
	found, err := rows(pool, `SELECT j.id, j.attempt, a.agent_id, (SELECT COUNT(*) FROM execution_steps s WHERE s.job_id = j.id AND s.idx > 0 AND s.status = 'success')
		FROM execution_jobs j JOIN assignments a ON a.job_id = j.id AND a.attempt = j.attempt WHERE j.status = 'success'`)
	if err != nil {
		w.violate("harness", "read jobs: %v", err)
		return
	}
	lies, err := rows(pool, `SELECT id, attempt FROM execution_jobs WHERE error LIKE '%' || ? || '%' UNION SELECT job_id, attempt FROM execution_steps WHERE name = ? OR error = ?`,
		aLie, aLie, aLie)
	if err != nil {
		w.violate("harness", "read lies: %v", err)
	}
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	for _, r := range lies {
		kept := r[1] == "0" // a rerun has it from the job of the earlier run
		if !kept && !w.watch.liars[r[0]] {
			w.violate("truth", "job %s/%s is what a liar said of it, who never had it", r[0], r[1])
		}
	}
	for _, r := range found {
		if w.watch.liars[r[0]] {
			continue
		}
		j := w.watch.jobs[r[0]]
		if j == nil {
			w.violate("truth", "job %s succeeded and was never run", r[0])
			continue
		}
		best := 0
		for who, step := range j.done {
			attempt, actor, _ := strings.Cut(who, " ")
			if attempt == r[1] && strings.HasPrefix(actor, r[2]+"/") {
				best = max(best, step)
			}
		}
		if fmt.Sprint(best) != r[3] {
			w.violate("truth", "job %s succeeded with %s steps on %s, which has done %d", r[0], r[3], r[2], best)
		}
	}
}

func (w *world) count(pool *database) {
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	s := &w.watch.s
	for query, into := range map[string]*int{
		"SELECT COUNT(*) FROM deliveries": &s.Deliveries, "SELECT COUNT(*) FROM execution_runs": &s.Runs,
		"SELECT COUNT(*) FROM execution_jobs": &s.Jobs, "SELECT COUNT(*) FROM agents": &s.Agents,
	} {
		_ = pool.QueryRowContext(context.Background(), query).Scan(into)
	}
}

// state makes the end part of the trace.
func (w *world) state(pool *database) {
	for _, query := range []string{
		"SELECT id, status, finished_at FROM execution_runs ORDER BY id",
		"SELECT id, name, status, attempt, started_at, finished_at FROM execution_jobs ORDER BY id",
		"SELECT id, state, gone_reason, requested_at FROM agents ORDER BY requested_at, id",
	} {
		found, err := rows(pool, query)
		if err != nil {
			w.violate("harness", "read the end: %v", err)
		}
		for _, r := range found {
			w.trace.add("end %s", strings.Join(r, " "))
		}
	}
}
