package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"
)

const (
	askedJobs  = 3               // of an instant
	momentLong = 2 * time.Minute // what may be so for a moment is not so for longer
)

// always are queries for what must be found at no instant.
var always = []struct{ what, query string }{
	{"token", `SELECT t.id, t.agent_id, a.gone_reason FROM agent_tokens t JOIN agents a ON a.id = t.agent_id WHERE t.type = 'ephemeral' AND a.state = 'gone'`},
	{"assignment", `SELECT a.job_id, a.attempt, j.status FROM assignments a JOIN execution_jobs j ON j.id = a.job_id WHERE a.ended_at IS NULL AND j.finished_at IS NOT NULL`},
	{"busy", `SELECT agent_id, COUNT(*) FROM assignments WHERE ended_at IS NULL GROUP BY agent_id HAVING COUNT(*) > 1`},
	{"open run", `SELECT r.id, r.status, COUNT(j.id) FROM execution_runs r JOIN execution_jobs j ON j.run_id = r.id WHERE r.finished_at IS NULL GROUP BY r.id
		HAVING COUNT(j.finished_at) = COUNT(j.id)`},
}

// sampler looks at the rows now and then, and asks why jobs wait.
type sampler struct {
	p     *person
	since map[string]time.Time // what has been so since when

	doubts map[string]doubt // reasons that look false
}

// sample runs until the world has settled.
func (w *world) sample(stop <-chan struct{}) {
	s := &sampler{p: &person{w: w, d: w.seed.dice("sampler"), http: w.net.client("sampler", nil)}, since: map[string]time.Time{}}
	defer s.p.http.CloseIdleConnections()
	for {
		t := time.NewTimer(s.p.d.between(time.Second, 4*time.Second))
		select {
		case <-stop:
			t.Stop()
			return
		case <-t.C:
		}
		s.look()
	}
}

func (s *sampler) look() {
	w := s.p.w
	file := w.database()
	pool, err := w.openDatabase()
	if err != nil {
		return // no server runs just now
	}
	defer func() { _ = pool.Close() }()
	for _, a := range always {
		found, err := rows(pool, a.query)
		if err != nil {
			w.trace.note("sample %s: %v", a.what, err) // the server has just died
			return
		}
		for _, r := range found {
			w.violate(a.what, "%s", strings.Join(r, " "))
		}
	}
	s.machinePool(pool)
	s.waiting(pool)
	ids, err := column(pool, "SELECT id FROM execution_jobs WHERE finished_at IS NULL ORDER BY id")
	if err != nil {
		return
	}
	for range min(askedJobs, len(ids)) {
		s.ask(pool, file, ids[s.p.d.below(len(ids))])
	}
}

// ask compares what the product says of a job with its rows, if those are the same before and after. A server that has started
// again meanwhile, and may be the one that answers, has another file.
func (s *sampler) ask(pool *database, file, id string) {
	before, found, err := readFacts(pool, id)
	if err != nil || !found {
		return
	}
	w, status, err := s.why(id)
	if err != nil || status != http.StatusOK {
		return
	}
	after, found, err := readFacts(pool, id)
	if err != nil || !found || !reflect.DeepEqual(before, after) || s.p.w.database() != file {
		return
	}
	s.p.w.watch.asked()
	wrong, passing := untrue(after, w)
	key := id + " " + after.Status + " " + wrong
	if !passing {
		s.forget(id)
		if wrong != "" {
			s.p.w.violate("reason", "job %s is %s, and %s; it says %q %+v", id, after.Status, wrong, w.Headline, w.Reasons)
		}
		return
	}
	first, known := s.since[key]
	if !known {
		s.forget(id)
		s.since[key] = time.Now()
	} else if time.Since(first) > momentLong {
		s.p.w.violate("reason", "job %s is %s for %s, and %s; it says %q %+v", id, after.Status, time.Since(first), wrong, w.Headline, w.Reasons)
	}
}

func (s *sampler) forget(id string) {
	for key := range s.since {
		if strings.HasPrefix(key, id+" ") {
			delete(s.since, key)
		}
	}
}

func (s *sampler) why(id string) (w whyAnswer, status int, err error) {
	a, err := s.p.ask(http.MethodGet, "/api/v1/admin/jobs/"+id+"/why", nil, nil)
	if err != nil {
		return w, 0, err
	}
	text, err := json.Marshal(a.body)
	if err != nil {
		return w, 0, err
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return w, 0, fmt.Errorf("decode: %w", err)
	}
	return w, a.status, nil
}

func (v *watch) asked() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s.Reasons++
}
