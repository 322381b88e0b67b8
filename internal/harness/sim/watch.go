package sim

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// watch sees what happens outside of the database: which agent does which step when, and under which term is written.
type watch struct {
	w *world

	mu    sync.Mutex
	jobs  map[string]*jobWatch
	liars map[string]bool // jobs that a liar had
	asks  []asked         // what steps were told
	terms *database
	s     Stats
}

// jobWatch is one job at its agents.
type jobWatch struct {
	agents map[string]int // running steps of each
	steps  map[int]string // who has begun a step
	done   map[string]int // steps that ended, by attempt
	lines  map[string]int
}

func newWatch(w *world) *watch {
	return &watch{w: w, jobs: map[string]*jobWatch{}, liars: map[string]bool{}}
}

// step notes that a step has begun; the result notes its end.
func (v *watch) step(s *script, i int) (end func()) {
	id, attempt, who := s.cfg.Spec.JobID, s.cfg.Spec.Attempt, s.a.actor
	v.w.trace.add("step %s/%d %d on %s begins", id, attempt, i, who)
	v.mu.Lock()
	defer v.mu.Unlock()
	j := v.job(id)
	for other, n := range j.agents {
		if other != who && n > 0 {
			v.w.violate("overlap", "job %s runs on %s (attempt %d) while it runs on %s", id, who, attempt, other)
		}
	}
	if first, ok := j.steps[i]; ok && first != who {
		v.w.violate("twice", "step %d of job %s began on %s and again, attempt %d, on %s", i, id, first, attempt, who)
	}
	j.steps[i] = who
	j.agents[who]++
	var once sync.Once
	end = func() {
		once.Do(func() {
			v.w.trace.add("step %s/%d %d on %s ends", id, attempt, i, who)
			v.mu.Lock()
			defer v.mu.Unlock()
			j.agents[who]--
			j.done[strconv.Itoa(attempt)+" "+who] = i
		})
	}
	go func() { // a dead process does nothing more, whatever its goroutines do
		select {
		case <-s.gone:
			end()
		case <-s.finished:
		}
	}()
	return end
}

func (v *watch) job(id string) *jobWatch {
	j := v.jobs[id]
	if j == nil {
		j = &jobWatch{agents: map[string]int{}, steps: map[int]string{}, done: map[string]int{}, lines: map[string]int{}}
		v.jobs[id] = j
	}
	return j
}

// lied notes that a liar had a job: what it says of it proves nothing.
func (v *watch) lied(job string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.liars[job] = true
}

// someOther is another job that was seen, one that runs if there is one.
func (v *watch) someOther(job string, d *dice) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	ids := slices.Sorted(maps.Keys(v.jobs))
	runs := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		for _, n := range v.jobs[id].agents {
			if n > 0 {
				return id == job
			}
		}
		return true
	})
	switch {
	case len(runs) > 0:
		ids = runs
	case len(ids) == 0:
		return job
	}
	return ids[d.below(len(ids))]
}

// fence looks at the term of what is about to be committed.
func (v *watch) fence(l *life, terms []int64) {
	if v.w.plan.coordinators < 2 || len(terms) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.terms == nil {
		pool, err := v.w.openDatabase()
		if err != nil {
			v.w.violate("harness", "open database: %v", err)
			return
		}
		v.terms = pool
	}
	var now int64
	if err := v.terms.QueryRowContext(context.Background(), "SELECT term FROM leader_term").Scan(&now); err != nil {
		return // there is none yet
	}
	for _, term := range terms {
		if term > 0 && term < now {
			v.w.violate("term", "%s writes under term %d while %d is the newest", l.actor, term, now)
		}
	}
}

func (v *watch) committed(*life, []int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s.Commits++
}

func (v *watch) crashed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s.Crashes++
}

func (v *watch) stats() Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.s
}

func (v *watch) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.terms != nil {
		_ = v.terms.Close()
		v.terms = nil
	}
}

// database is what is committed, for reading.
type database struct {
	*sql.DB
	postgres bool
}

// Close ends what was opened for one look.
func (d *database) Close() error {
	if d.postgres { // the world's own
		return nil
	}
	return d.DB.Close()
}

// QueryContext takes the parameters of either engine as ?.
func (d *database) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.DB.QueryContext(ctx, d.rebind(query), args...)
}

// QueryRowContext is QueryContext for one row.
func (d *database) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return d.DB.QueryRowContext(ctx, d.rebind(query), args...)
}

func (d *database) rebind(query string) string {
	if !d.postgres {
		return query
	}
	parts := strings.Split(query, "?")
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			fmt.Fprintf(&b, "$%d", i)
		}
		b.WriteString(part)
	}
	return b.String()
}

// openDatabase opens what is committed.
func (w *world) openDatabase() (*database, error) {
	if w.postgres != nil {
		return &database{w.postgres.pool, true}, nil
	}
	path := w.database()
	if path == "" {
		return nil, fmt.Errorf("no server runs")
	}
	pool, err := sql.Open("sqlite", "file:"+path+"?_pragma=query_only(1)")
	if err == nil {
		pool.SetMaxOpenConns(1)
	}
	return &database{pool, false}, err
}

// reader is a database, or a transaction of one.
type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// rows reads a query's rows as text.
func rows(pool reader, query string, args ...any) (out [][]string, err error) {
	r, err := pool.QueryContext(context.Background(), query, args...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	names, err := r.Columns()
	if err != nil {
		return nil, err
	}
	for r.Next() {
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := r.Scan(into...); err != nil {
			return nil, err
		}
		line := make([]string, len(names))
		for i, v := range values {
			line[i] = v.String
		}
		out = append(out, line)
	}
	return out, r.Err()
}
