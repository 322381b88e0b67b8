package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/wire"
)

// asked is what a step was told of a request.
type asked struct {
	run, job, request string
	event             string   // id of the event that it emitted
	names             []string // of the jobs that it added
}

// ask does what `kici job add` and `kici event emit` do in a step. One in three asks again under the same id, as a step does whose
// question was cut off.
func (s *script) ask(i int, st step) {
	if s.cfg.Ask == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), 40*time.Second)
	defer stop()
	go func() {
		select {
		case <-s.soft:
			stop()
		case <-ctx.Done():
		}
	}()
	if st.add > 0 {
		s.askTwice(ctx, stepcall.Request{Type: wire.TypeJobAdd, RequestID: fmt.Sprintf("add-%d", i), Jobs: addedJobs(s.cfg.Spec.JobID, i, st.add)})
	}
	if st.emit != "" {
		s.askTwice(ctx, stepcall.Request{Type: wire.TypeEventEmit, RequestID: fmt.Sprintf("emit-%d", i), Name: st.emit, Payload: json.RawMessage(`{"by":"step"}`)})
	}
}

// addedJobs are n jobs of which each needs the one before it.
func addedJobs(jobID string, i, n int) string {
	var b strings.Builder
	tag := jobID[max(0, len(jobID)-8):]
	b.WriteString("jobs:\n")
	for k := range n {
		fmt.Fprintf(&b, "  extra%d%d-%s:\n    checkout: false\n    runs-on: linux\n", i, k, tag)
		if k > 0 {
			fmt.Fprintf(&b, "    needs: [extra%d%d-%s]\n", i, k-1, tag)
		}
		fmt.Fprintf(&b, "    steps:\n      - run: sim ms=%d lines=1\n", 100+300*k)
	}
	return b.String()
}

func (s *script) askTwice(ctx context.Context, r stepcall.Request) {
	w, d := s.a.m.w, s.a.m.w.seed.dice(s.a.actor+" asks "+r.RequestID)
	if w.faulty() && d.chance(25) { // the disk of a server that has its own is full just then, and nothing else of this job waits for it
		time.Sleep(d.between(400*time.Millisecond, time.Second))
		w.trace.add("disk full for %s", s.a.actor)
		w.fullUntil.Store(int64(time.Since(w.trace.began) + d.between(time.Second, 4*time.Second)))
	}
	first := s.cfg.Ask(ctx, r)
	w.trace.add("step of %s asks %s: %q %v", s.cfg.Spec.JobID, r.RequestID, first.Code, first.Names)
	if first.Code != "" {
		switch first.Code {
		case wire.StepInvalid, wire.StepTooLarge, wire.StepUnsupported:
			if !strings.Contains(first.Message, "only a running job") && !strings.Contains(first.Message, "does not have the job") {
				w.violate("ask", "job %s was refused %s: %s %s", s.cfg.Spec.JobID, r.RequestID, first.Code, first.Message)
			}
		}
		return
	}
	w.watch.told(asked{run: s.cfg.Spec.RunID, job: s.cfg.Spec.JobID, request: r.RequestID, event: first.ID, names: first.Names})
	if !d.chance(33) {
		return
	}
	again := s.cfg.Ask(ctx, r)
	if again.Code == "" && (again.ID != first.ID || !slices.Equal(again.Names, first.Names)) || again.Code == wire.StepInvalid && !strings.Contains(again.Message, "does not have the job") {
		w.violate("ask", "job %s asked %s twice and was told %+v, then %+v", s.cfg.Spec.JobID, r.RequestID, first, again)
	}
}

// told remembers what the server has promised to a step.
func (v *watch) told(a asked) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asks = append(v.asks, a)
	v.s.Asks++
}

// verifyAsks: what a step was promised is there, once.
func (w *world) verifyAsks(pool *database) {
	w.watch.mu.Lock()
	asks := slices.Clone(w.watch.asks)
	w.watch.mu.Unlock()
	for _, a := range asks {
		if a.event != "" {
			found, err := rows(pool, "SELECT emitter, source_run_id FROM kici_events WHERE id = ?", a.event)
			if err == nil && len(found) == 0 && w.wasDiscarded(a.event) {
				continue
			}
			if err != nil || len(found) != 1 || found[0][0] != "step" || found[0][1] != a.run {
				w.violate("event", "%s, which job %s emitted, is %v: %v", a.event, a.job, found, err)
			}
		}
		for _, name := range a.names {
			found, err := column(pool, "SELECT id FROM execution_jobs WHERE run_id = ? AND name = ?", a.run, name)
			if err != nil || len(found) != 1 {
				w.violate("added", "job %q, which job %s added by %s, is there %d times: %v", name, a.job, a.request, len(found), err)
			}
		}
	}
	w.verifyAdditions(pool)
}

// verifyAdditions: a run has the jobs that its steps added, and no others than those and its workflow's.
func (w *world) verifyAdditions(pool *database) {
	additions, err := rows(pool, "SELECT run_id, jobs FROM job_additions")
	if err != nil {
		w.violate("harness", "read additions: %v", err)
		return
	}
	want := map[string][]string{}
	for _, a := range additions {
		var names []string
		if err := json.Unmarshal([]byte(a[1]), &names); err != nil {
			w.violate("added", "what was added to run %s cannot be read: %v", a[0], err)
		}
		want[a[0]] = append(want[a[0]], names...)
	}
	there, err := rows(pool, "SELECT run_id, name FROM execution_jobs WHERE base_name LIKE 'extra%'")
	if err != nil {
		w.violate("harness", "read added jobs: %v", err)
		return
	}
	have := map[string][]string{}
	for _, r := range there {
		have[r[0]] = append(have[r[0]], r[1])
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		slices.Sort(want[id])
		slices.Sort(have[id])
		if !slices.Equal(want[id], have[id]) {
			w.violate("added", "run %s has %v, added were %v", id, have[id], want[id])
		}
		delete(have, id)
	}
	for _, id := range slices.Sorted(maps.Keys(have)) {
		w.violate("added", "run %s has %v, which nobody added", id, have[id])
	}
}
