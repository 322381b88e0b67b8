package sim

import (
	"fmt"
	"net/http"
	"time"
)

// How long things may take where nothing breaks and nothing else is to do.
const (
	beginsWithin = 3 * time.Minute // a machine may still be backing off
	stopsWithin  = 15 * time.Second
	endsWithin   = 2 * time.Minute
)

// epilogue uses the system once more when all has settled: what broke has left nothing behind that is in the way. A run is started
// and goes through, another one is cancelled while it runs, and its agent hears of it.
func (w *world) epilogue() {
	p := &person{w: w, d: w.seed.dice("epilogue"), http: w.net.client("epilogue", nil)}
	defer p.http.CloseIdleConnections()
	p.n = 1_000_000
	repo := fmt.Sprintf("repo%d", 1+p.d.below(w.plan.repos))
	through, ok := p.begin(repo, "epilogue-1")
	if !ok {
		return
	}
	stopped, ok := p.begin(repo, "epilogue-2")
	if !ok {
		return
	}
	w.cancelled(p, stopped)
	if status := w.await("SELECT status FROM execution_runs WHERE id = ? AND finished_at IS NOT NULL", through, beginsWithin+endsWithin); status != "success" {
		w.violate("epilogue", "run %s, which nothing disturbed, is %q after %s", through, status, beginsWithin+endsWithin)
	}
}

func (w *world) cancelled(p *person, run string) {
	const first = " FROM execution_jobs WHERE run_id = ? AND name = 'first' AND "
	if began := w.await("SELECT id"+first+"started_at IS NOT NULL", run, beginsWithin+endsWithin); began == "" {
		w.violate("epilogue", "run %s has not begun within %s", run, beginsWithin+endsWithin)
		return
	}
	a, err := p.insist(http.MethodPost, "/api/v1/admin/runs/"+run+"/cancel", map[string]any{"reason": "enough"}, nil)
	if err != nil || a.status >= 300 {
		w.violate("epilogue", "cancel run %s: %v %d %v", run, err, a.status, a.body)
		return
	}
	if status := w.await("SELECT status"+first+"finished_at IS NOT NULL", run, stopsWithin); status != "cancelled" {
		w.violate("epilogue", "a job of run %s was cancelled while it ran, and is %q", run, status)
	}
}

func (p *person) begin(repo, key string) (run string, ok bool) {
	a, err := p.insist(http.MethodPost, "/api/v1/admin/runs", map[string]any{"source": repo, "workflow": "steady"}, map[string]string{"Idempotency-Key": key})
	if err != nil || a.status != http.StatusCreated {
		p.w.violate("epilogue", "start a run: %v %d %v", err, a.status, a.body)
		return "", false
	}
	return a.text("runId"), true
}

// await asks until there is a row, "" when there is none in time.
func (w *world) await(query, id string, within time.Duration) string {
	for began := time.Now(); time.Since(began) < within; time.Sleep(300 * time.Millisecond) {
		pool, err := w.openDatabase()
		if err != nil {
			continue
		}
		found, err := column(pool, query, id)
		_ = pool.Close()
		if err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
